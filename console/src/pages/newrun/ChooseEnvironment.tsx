import { useState } from "react";
import { type Environment, isNamed } from "../../api/environments";
import { Check, Command, cx, ErrorNote, Link, Plain, SearchBox, Skeleton, Ticked } from "../../ui";
import { EnvironmentFoot } from "../environments/List";
import type { Form } from "./form";

const SEARCH_FROM = 9;

/** One of the environments, as a group of radio buttons, and ones with names that are trained on together with it. */
export function ChooseEnvironment({ form }: { form: Form }) {
  const [wanted, setWanted] = useState("");
  const { environments, environment } = form;
  if (environments.isError) return <ErrorNote error={environments.error} onRetry={() => environments.refetch()} />;
  if (!environments.data) return <Skeleton lines={4} />;
  const ordered = [...environments.data].sort((a, b) => Number(isNamed(a)) - Number(isNamed(b)));
  const shown = ordered.filter((each) =>
    `${each.name} ${each.id} ${each.path}`.toLowerCase().includes(wanted.toLowerCase()),
  );
  const choose = (each: Environment) => form.choose({ environment: each.id });
  const parts = environment && isNamed(environment) ? environment.id.split(",") : [];
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
          <label key={each.id} className={cx("choice", isChosen(each, environment) && "choice-on")}>
            <input
              type="radio"
              name="environment"
              value={each.id}
              checked={isChosen(each, environment)}
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
      {parts.length > 0 && (
        <fieldset className="row small together">
          <legend>Together with</legend>
          {ordered
            .filter((each) => isNamed(each) && each.bringsRows && each.id !== parts[0])
            .map((each) => (
              <Check
                key={each.id}
                label={each.id}
                checked={parts.includes(each.id)}
                onChange={() => form.choose({ environment: toggled(parts, each.id).join(",") })}
              />
            ))}
        </fieldset>
      )}
      <div className="row small muted">
        <span>Not listed? Run this in its folder, or read</span>
        <Link href="/environments">what an environment is</Link>
        <Command text="benchmax launch" />
      </div>
    </div>
  );
}

/** Whether an environment is the chosen one, or the first of several. */
function isChosen(each: Environment, chosen: Environment | null): boolean {
  return chosen !== null && (each.id === chosen.id || each.id === chosen.id.split(",")[0]);
}

/** The names with one more or one less. */
function toggled(names: readonly string[], name: string): string[] {
  return names.includes(name) ? names.filter((each) => each !== name) : [...names, name];
}
