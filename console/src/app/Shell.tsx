// The frame around every page: navigation, theme, keyboard help, and the one place that says the server is away.
import { Outlet, useRouterState } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { request } from "../api/client";
import { queries, useMe } from "../api/queries";
import { session, useSession } from "../api/session";
import icon from "../assets/icon.svg";
import { Button, Dialog, Icon, KeyHint, Link, Segments, Spinner, useGo, useKeys } from "../ui";
import { SignIn } from "./SignIn";
import { setTheme, type Theme, useTheme } from "./theme";

const PLACES = [
  { href: "/experiments", label: "Runs", icon: "runs", also: ["/", "/train"] },
  { href: "/datasets", label: "Datasets", icon: "data" },
  { href: "/environments", label: "Environments", icon: "environment" },
  { href: "/playground", label: "Playground", icon: "chat" },
  { href: "/settings", label: "Settings", icon: "settings" },
];

const KEYS: [string[], string][] = [
  [["g", "r"], "Runs"],
  [["g", "d"], "Datasets"],
  [["g", "e"], "Environments"],
  [["g", "p"], "Playground"],
  [["g", "s"], "Settings"],
  [["n"], "New run"],
  [["/"], "Search or filter on this page"],
  [["1–9"], "Tabs of a run"],
  [["j"], "Next row or sample"],
  [["k"], "Previous row or sample"],
  [["J", "K"], "Next and previous group of samples"],
  [["x"], "Select the run"],
  [["←", "→"], "Move along the focused chart"],
  [["t"], "Switch between light and dark"],
  [["?"], "Show this help"],
];

export function Shell() {
  const { signedOut, away } = useSession();
  const [help, setHelp] = useState(false);
  const [menu, setMenu] = useState(false);
  const path = useRouterState({ select: (state) => state.location.pathname });
  const go = useGo();
  const main = useRef<HTMLElement>(null);
  const { shown } = useTheme();
  useKeys({
    "?": () => setHelp(true),
    t: () => setTheme(shown === "dark" ? "light" : "dark"),
    n: () => go("/experiments/new"),
    "g r": () => go("/experiments"),
    "g d": () => go("/datasets"),
    "g e": () => go("/environments"),
    "g p": () => go("/playground"),
    "g s": () => go("/settings"),
    "/": () => document.querySelector<HTMLElement>('input[type="search"]')?.focus(),
  });
  // A new address closes the menu.
  useEffect(() => setMenu(false), [path]);
  if (signedOut || path === "/login") return <SignIn />;
  return (
    <div className="shell">
      <button type="button" className="skip button" onClick={() => main.current?.focus()}>
        Skip to content
      </button>
      <div className="topbar">
        <Button
          kind="quiet"
          icon={<Icon name="menu" />}
          aria-label="Menu"
          aria-expanded={menu}
          onClick={() => setMenu(!menu)}
        />
        <Brand />
      </div>
      {menu && <button type="button" className="scrim" aria-label="Close the menu" onClick={() => setMenu(false)} />}
      <Sidebar open={menu} path={path} onHelp={() => setHelp(true)} />
      <main className="main" ref={main} tabIndex={-1}>
        {away && (
          <div className="banner" role="status">
            <Spinner /> The server does not answer. Reconnecting…
          </div>
        )}
        <Outlet />
      </main>
      <Dialog open={help} onClose={() => setHelp(false)} title="Keyboard">
        <dl className="shortcuts">
          {KEYS.map(([keys, what]) => (
            <div key={what} className="contents">
              <dt>
                {keys.map((key) => (
                  <KeyHint key={key}>{key}</KeyHint>
                ))}
              </dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
      </Dialog>
    </div>
  );
}

export function Brand() {
  return (
    <Link href="/experiments" className="brand">
      <img src={icon} alt="" />
      benchmax
    </Link>
  );
}

function Sidebar({ open, path, onHelp }: { open: boolean; path: string; onHelp: () => void }) {
  const { theme } = useTheme();
  return (
    <aside className={open ? "sidebar sidebar-open" : "sidebar"}>
      <Brand />
      <div className="nav-new">
        <Link href="/experiments/new" className="button">
          <Icon name="plus" /> New run
        </Link>
      </div>
      <nav aria-label="Main" className="stack-tight">
        {PLACES.map((place) => (
          <Link
            key={place.href}
            href={place.href}
            className="nav-link"
            aria-current={isHere(place, path) ? "page" : undefined}
          >
            <Icon name={place.icon} /> {place.label}
          </Link>
        ))}
      </nav>
      <div className="sidebar-foot">
        <div className="theme">
          <span>Theme</span>
          <Segments<Theme>
            label="Theme"
            value={theme}
            onChange={setTheme}
            options={[
              { value: "auto", label: <Icon name="auto" size={13} />, title: "Follow the system" },
              { value: "light", label: <Icon name="sun" size={13} />, title: "Light" },
              { value: "dark", label: <Icon name="moon" size={13} />, title: "Dark" },
            ]}
          />
        </div>
        <User onHelp={onHelp} />
      </div>
    </aside>
  );
}

function isHere(place: { href: string; also?: string[] }, path: string): boolean {
  const roots = [place.href, ...(place.also ?? [])];
  return roots.some((root) => path === root || (root !== "/" && path.startsWith(`${root}/`)));
}

function User({ onHelp }: { onHelp: () => void }) {
  const me = useMe();
  const signOut = async () => {
    await request("POST", "/logout").catch(() => undefined);
    queries.clear();
    session.end();
  };
  return (
    <div className="sidebar-user">
      {me.data ? (
        <Link href="/settings/account" className="clip" title="Password and sign-out everywhere">
          {me.data.email}
        </Link>
      ) : (
        <span className="clip">Not signed in</span>
      )}
      <Button kind="quiet" size="small" aria-label="Keyboard help" title="Keyboard help (?)" onClick={onHelp}>
        ?
      </Button>
      <Button
        kind="quiet"
        size="small"
        icon={<Icon name={me.data ? "out" : "key"} />}
        aria-label={me.data ? "Sign out" : "Sign in"}
        title={me.data ? "Sign out" : "Sign in"}
        onClick={me.data ? signOut : session.end}
      />
    </div>
  );
}
