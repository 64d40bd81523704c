import { useState } from "react";
import type { Environment } from "../../api/environments";
import { Command, cx, ErrorNote, Link, Plain, SearchBox, Skeleton, Ticked } from "../../ui";
import { EnvironmentFoot } from "../environments/List";
import type { Form } from "./form";

const SEARCH_FROM = 9;

/** One of the environments, as a group of radio buttons. */
export function ChooseEnvironment({ form }: { form: Form }) {
  const [wanted, setWanted] = useState("");
  const { environments, environment } = form;
  if (environments.isError) return <ErrorNote error={environments.error} onRetry={() => environments.refetch()} />;
  if (!environments.data) return <Skeleton lines={4} />;
  const ordered = [...environments.data].sort((a, b) => Number(a.kind === "builtin") - Number(b.kind === "builtin"));
  const shown = ordered.filter((each) =>
    `${each.name} ${each.id} ${each.path}`.toLowerCase().includes(wanted.toLowerCase()),
  );
  const choose = (each: Environment) => form.choose({ environment: each.id });
  return (
    <div className="stack">
      {ordered.length >= SEARCH_FROM && (
        <SearchBox
          label="Find an environment"
          placeholder="Find by name"
          value={wanted}
          onChange={(event) => setWanted(event.target.value)}
        />
      )}
      <div className="env-grid" role="radiogroup" aria-label="Environment">
        {shown.map((each) => (
          <label key={each.id} className={cx("choice", each.id === environment?.id && "choice-on")}>
            <input
              type="radio"
              name="environment"
              value={each.id}
              checked={each.id === environment?.id}
              onChange={() => choose(each)}
            />
            <span className="choice-body">
              <span className="strong">
                <Plain text={each.name} />
              </span>
              <span className="env-words">
                <Ticked text={each.description || each.path} />
              </span>
              <EnvironmentFoot environment={each} />
            </span>
          </label>
        ))}
      </div>
      <div className="row small muted">
        <span>Yours is not here? Run this in its folder, or read</span>
        <Link href="/environments">what an environment is</Link>
        <Command text="benchmax launch" />
      </div>
    </div>
  );
}
