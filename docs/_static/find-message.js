// A field at the top of the page Messages, which finds the message that a line of a log shows.
"use strict";

(() => {
  const SHOWN = 5;
  const WORTH_SHOWING = 0.4; // of the best

  const words = (text) => new Set(text.toLowerCase().match(/[a-z_]{2,}|\b[45]\d\d\b/g) ?? []);

  // A row is known by the lines of its first cell, without the examples in italics, which differ from log to log.
  const linesOf = (row) => {
    const cell = row.cells[0].cloneNode(true);
    for (const example of cell.querySelectorAll("em")) example.replaceWith(" ");
    for (const end of cell.querySelectorAll("br")) end.replaceWith("\n");
    return cell.textContent.split("\n").map(words).filter((line) => line.size);
  };

  // A word that few lines have tells more than one that many have.
  const weigher = (lines) => {
    const counts = new Map();
    for (const line of lines) for (const word of line) counts.set(word, (counts.get(word) ?? 0) + 1);
    return (word) => (counts.has(word) ? Math.log(1 + lines.length / counts.get(word)) : 0);
  };

  const begin = (messages) => {
    const rows = [...messages.querySelectorAll("tbody tr")].map((row) => ({ row, lines: linesOf(row) }));
    const weight = weigher(rows.flatMap(({ lines }) => lines));
    const sum = (some) => [...some].reduce((total, word) => total + weight(word), 0);
    const score = (asked, lines) =>
      Math.max(0, ...lines.map((line) => {
        const shared = sum([...line].filter((word) => asked.has(word)));
        return shared && (shared * shared) / sum(line);
      }));

    const find = (text) => {
      const asked = words(text);
      const found = rows.map(({ row, lines }) => ({ row, score: score(asked, lines) }));
      found.sort((one, other) => other.score - one.score);
      return found.filter((each) => each.score > WORTH_SHOWING * found[0].score).slice(0, SHOWN);
    };

    const field = Object.assign(document.createElement("input"), {
      type: "search",
      id: "find-message",
      placeholder: "Paste a line of your log",
    });
    field.setAttribute("aria-label", field.placeholder);
    const results = document.createElement("table");
    results.className = "docutils align-default";
    results.id = "found-messages";
    const nothing = Object.assign(document.createElement("p"), {
      textContent: "No message on this page has these words.",
      hidden: true,
    });
    field.addEventListener("input", () => {
      const found = find(field.value);
      results.replaceChildren(...found.map(({ row }) => row.cloneNode(true)));
      nothing.hidden = !field.value.trim() || found.length > 0;
    });
    messages.querySelector("h1").after(field, nothing, results);
  };

  document.addEventListener("DOMContentLoaded", () => {
    const messages = document.querySelector("section#messages");
    if (messages) begin(messages);
  });
})();
