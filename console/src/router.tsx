// Every address of the console. Each page is a file of its own that loads when it is first opened.
import {
  createHashHistory,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
} from "@tanstack/react-router";
import { Shell } from "./app/Shell";
import { Crash, Loading } from "./app/States";

const root = createRootRoute({
  component: Shell,
  notFoundComponent: lazyRouteComponent(() => import("./pages/NotFound")),
});

type Load = () => Promise<{ default: React.ComponentType }>;

function page<Path extends string>(path: Path, load: Load) {
  return createRoute({ getParentRoute: () => root, path, component: lazyRouteComponent(load) });
}

const runs: Load = () => import("./pages/Runs");
const run: Load = () => import("./pages/Run");

const routes = [
  page("/", runs),
  page("/login", () => import("./pages/NotFound")),
  page("/experiments", runs),
  page("/experiments/new", () => import("./pages/NewRun")),
  page("/experiments/$runId", run),
  page("/experiments/$runId/$tab", run),
  page("/train", runs),
  page("/train/$runId", run),
  page("/train/$runId/$tab", run),
  page("/datasets", () => import("./pages/Datasets")),
  page("/datasets/$", () => import("./pages/Datasets")),
  page("/environments", () => import("./pages/Environments")),
  page("/environments/$", () => import("./pages/Environments")),
  page("/playground", () => import("./pages/Playground")),
  page("/playground/$", () => import("./pages/Playground")),
  page("/settings", () => import("./pages/Settings")),
  page("/settings/$tab", () => import("./pages/Settings")),
  page("/device", () => import("./pages/Device")),
];

let shownPath = "";

export const router = createRouter({
  routeTree: root.addChildren(routes),
  // A saved copy lies in a folder of any name: its addresses are behind a #.
  history: import.meta.env.VITE_SAVED ? createHashHistory() : undefined,
  defaultPreload: "intent",
  defaultPendingComponent: Loading,
  defaultErrorComponent: Crash,
  defaultPendingMs: 150,
  // A change of filters on the same page leaves everything where it is.
  scrollRestoration: ({ location }) => {
    const moved = location.pathname !== shownPath;
    shownPath = location.pathname;
    return moved;
  },
  // Values of the address are plain text, as anybody would type them.
  parseSearch: (text) => Object.fromEntries(new URLSearchParams(text)),
  stringifySearch: (search) => {
    const text = new URLSearchParams(search as Record<string, string>).toString();
    return text ? `?${text}` : "";
  },
});
