// The tab "Crew" on the page of a task instance: what Airflow's page loads. It brings React.
import { CrewTab } from "./tab.js";

// The component is handed over when its style is there, or certainly is not: else it would flash without.
await new Promise((settled) => {
  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = new URL("crew.css", import.meta.url).href;
  style.onload = settled;
  style.onerror = settled;
  document.head.append(style);
});

// Under the name of the tab, and under the one name that the page knows for every plugin.
globalThis.Crew = CrewTab;
globalThis.AirflowPlugin = CrewTab;
