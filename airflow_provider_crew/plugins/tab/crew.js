// The tab "Crew" of a task instance, and the page "Crews": what Airflow's page loads. It brings React.
import { CrewsPage } from "./page.js";
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

// Airflow finds each under the name of its app, so neither replaces the other.
globalThis.Crew = CrewTab;
globalThis.Crews = CrewsPage;
