// The tab's modules, and what its tests do with them. Airflow's responses are in globalThis.responses, by the end of
// their path. Any other path is not found.
(async () => {
  const names = ["story", "tab", "question", "markdown", "output", "batch", "safe", "attempts", "airflow", "clear"];
  const modules = await Promise.all(names.map((each) => import(`/${each}.js`)));
  const [{ story, CHOICES }, { Choices, Header, Told }, { Question }, { Markdown }, { Output }, { Results }, safe, { Attempts, costOf }, airflow, { Clear }] = modules;
  Object.assign(globalThis, { Told, Question, Markdown, Output, safe, Attempts, costOf, airflow, Clear });

  // What the tab shows of a task.
  globalThis.shown = (seen) => {
    const of = story(seen);
    const keys = Object.fromEntries(Object.entries(CHOICES).map(([key, title]) => [title, key]));
    const choices = Object.fromEntries(of.choices.map(([title, effect]) => [keys[title], effect]));
    const tasks = [...of.rows, ...of.coming].map(({ name, state, seconds }) => [name, state, seconds]);
    const { question, batch } = of;
    const form = question && Question({ of: question, task: {} });
    const limits = draw(Choices(of));
    return { ...of, choices, tasks, limits, text: draw([Header({ of }), form, batch && Results({ of: batch })]) };
  };
  globalThis.types = (drawn) => [...new Set(elements(drawn).map(({ type }) => type))];

  globalThis.responses = {};
  globalThis.ask = async (url) => {
    asked.push(String(url));
    const path = Object.keys(responses).find((end) => new URL(url).pathname.endsWith(end));
    return path ? { ok: true, json: async () => responses[path] } : { ok: false, status: 404 };
  };
  globalThis.first = (task) =>
    new Promise((seen) => { const stop = airflow.watch(task, (news) => (stop(), seen(news.seen))); });

  // What a tab has read after an outage during which an XCom changed.
  globalThis.afterOutage = async (task, path, time, value) => {
    let last;
    const stop = airflow.watch(task, ({ seen }) => (last = seen ?? last));
    await pass(9);
    responses["/xcomEntries"].xcom_entries[0].timestamp = time;
    const whole = responses[path];
    delete responses[path];
    await pass(9);
    responses[path] = { ...whole, value };
    await pass(9);
    stop();
    return last;
  };

  // The requests of a minute, and those for XComs, of a tab that is shown, hidden, and shown again.
  globalThis.watched = async (task) => {
    const counts = [];
    const stop = airflow.watch(task, () => {});
    for (const value of [false, true, false]) {
      Object.defineProperty(document, "hidden", { value, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
      asked.length = 0;
      await pass(59);
      counts.push([asked.length, asked.filter((url) => url.includes("/xcomEntries")).length]);
    }
    stop();
    return counts;
  };

  // Answers each request with these statuses, of which the last repeats, and presses a button twice before anything can
  // be drawn again. ``given``: the first states of the component, if not its own.
  globalThis.twice = async (component, properties, label, statuses, given = []) => {
    const [sent, notes, focused] = [[], [], []];
    globalThis.noted = (state) => notes.push(state);
    globalThis.fetch = async (url, { method, body }) => {
      sent.push([method, new URL(url).pathname, JSON.parse(body)]);
      const status = statuses[Math.min(sent.length, statuses.length) - 1];
      return { ok: status < 300, status, json: async () => ({ detail: "<b>", task_instances: [{}, {}] }) };
    };
    globalThis.states = [...given];
    const all = elements(component(properties));
    for (const { props } of all) if (props.ref) props.ref.current = { focus: () => focused.push(props.role) };
    const { props: { onClick } } = all.find(({ type, props }) => type === "button" && props.children === label);
    await Promise.all([onClick(), onClick()]);
    return { sent, notes, focused };
  };
})();
