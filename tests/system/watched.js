// Shows the tabs of several tasks below the Crews page, each with the time at which its look at Airflow began.
const looks = {};
const fetched = globalThis.fetch;
globalThis.fetch = (url, ...rest) => {
  const { pathname, search } = new URL(url, location.href);
  (looks[pathname + (search.includes("state=running") ? "?active" : "")] ??= []).push(Date.now() / 1000);
  return fetched(url, ...rest);
};

let CrewsPage;
Object.defineProperty(globalThis, "Crews", {
  set: (page) => (CrewsPage = page),
  get: () => CrewsPage && Watched,
});

function Watched() {
  const { createElement: h, useEffect, useState } = globalThis.React;
  const [{ run, tasks }, setRun] = useState({ tasks: [] });
  const [tab, setTab] = useState();
  useEffect(() => {
    globalThis.watchRun = setRun;
    Promise.all([import("/crew-tab/tab.js"), import("/crew-tab/airflow.js")]).then(([{ Told }, { paths, watch }]) => {
      const Tab = ({ task }) => {
        const [{ seen, began }, setSeen] = useState({});
        useEffect(() => {
          const path = `/api/v2/${paths(task).instance.map(encodeURIComponent).join("/")}`;
          return watch(task, (news) => news.seen && setSeen({ seen: news.seen, began: looks[path].at(-1) }));
        }, []);
        const { polled_at: polledAt = 0 } = seen?.crew_progress ?? {};
        return seen && h("div", { id: task.taskId, "data-began": began, "data-polled": polledAt }, h("div", { className: "crew-tab" }, h(Told, { seen })));
      };
      setTab(() => Tab);
    });
  }, []);
  return [h(CrewsPage, { key: "page" }), ...(tab ? tasks.map((taskId) => h(tab, { key: taskId, task: { dagId: "watched", runId: run, taskId } })) : [])];
}

// What is shown of each task at this moment, in its tab and in its row of the Crews page.
globalThis.shownNow = (tasks) => {
  const active = looks["/api/v2/dags/watched/dagRuns/~/taskInstances?active"] ?? [];
  const limits = document.querySelector(".crew-page section > .crew-choices")?.innerText ?? "";
  const rows = [...document.querySelectorAll(".crew-list > li")];
  const of = (task) => {
    const tab = document.getElementById(task);
    const row = rows.find((each) => each.querySelector("a")?.href.includes(`/${task}/plugin/crew`));
    const all = (selector) => [...(tab?.querySelectorAll(selector) ?? [])].map((each) => each.innerText);
    const at = [...(tab?.querySelectorAll("dt") ?? [])].find((each) => each.innerText === "At")?.nextElementSibling.innerText;
    return [
      { where: "tab", text: tab?.innerText ?? "", began: Number(tab?.dataset.began ?? 0), polled_at: Number(tab?.dataset.polled ?? 0), current: all("[aria-current=step] .crew-name"), buttons: all(".crew-form dt button, .crew-main-button"), place: at ?? "" },
      { where: "page", text: row?.innerText ?? "", began: active.at(-3) ?? 0, listed: active.at(-2) ?? 0, limits },
    ];
  };
  return Object.fromEntries(tasks.map((task) => [task, of(task)]));
};
