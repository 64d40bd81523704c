// What the list is narrowed to and ordered by.
import { useEffect, useState } from "react";
import type { Schemas } from "../../api/client";
import type { Order, Outline } from "../../api/rollouts";
import { useScalars } from "../../api/scalars";
import { shownStep, stepName, wireStep } from "../../api/steps";
import { components } from "../../chart/metrics";
import { Button, Chip, Field, format, Icon, Input, Plain, SearchBox, Segments, Select, useSettled } from "../../ui";
import { useRun } from "../run/context";
import { CLEARED, type View } from "./filters";

const ORDERS: { value: Order; label: string }[] = [
  { value: "newest", label: "By step and group" },
  { value: "worst", label: "Worst first" },
  { value: "best", label: "Best first" },
  { value: "longest", label: "Longest first" },
];

export function Toolbar({
  view,
  modes,
  evals,
  outline,
  more,
  onMore,
}: {
  view: View;
  modes: string[];
  evals: Schemas["EvalInfo"][];
  outline: Outline | undefined;
  more: boolean;
  onMore: () => void;
}) {
  const { search, filters } = view;
  const names: Record<string, string> = { train: "Train", eval: "Eval", "external-eval": "Comparisons" };
  const mode = (value: string) =>
    search.set({
      ...CLEARED,
      mode: value,
      eval: value === "external-eval" ? evals.at(-1)?.id : null,
      rollout: null,
      with: null,
    });
  return (
    <div className="ro-tools">
      <div className="row">
        <Segments
          label="Which rollouts"
          value={filters.mode}
          onChange={mode}
          options={modes.map((value) => ({ value, label: names[value] ?? value }))}
        />
        <Segments
          label="Shape"
          value={view.shape}
          onChange={(shape) => search.set({ view: shape === "map" ? "map" : null })}
          options={[
            { value: "list", label: "List" },
            { value: "map", label: "Heat map", title: "The same examples across steps" },
          ]}
        />
        {filters.mode === "external-eval" && evals.length > 0 && (
          <Select
            aria-label="Which comparison"
            value={filters.externalEvalId ?? ""}
            onChange={(event) => search.set({ eval: event.target.value, rollout: null, with: null })}
          >
            {!filters.externalEvalId && <option value="">Choose one</option>}
            {evals.map((each) => (
              <option key={each.id} value={each.id}>
                {each.name}
              </option>
            ))}
          </Select>
        )}
        {view.shape === "list" && (
          <>
            <SearchText view={view} />
            <Select
              aria-label="Order"
              value={view.order}
              onChange={(event) => search.set({ order: event.target.value === "newest" ? null : event.target.value })}
            >
              {ORDERS.map((order) => (
                <option key={order.value} value={order.value}>
                  {order.label}
                </option>
              ))}
            </Select>
            <Button size="normal" aria-expanded={more} onClick={onMore} icon={<Icon name="settings" />}>
              Filter
            </Button>
          </>
        )}
      </div>
      {view.shape === "list" && more && <FilterFields view={view} outline={outline} />}
      {view.shape === "list" && view.narrowed && <Chosen view={view} />}
    </div>
  );
}

function SearchText({ view }: { view: View }) {
  const [text, setText] = useState(view.text);
  const settled = useSettled(text, 300);
  const { set } = view.search;
  useEffect(() => set({ q: settled.trim() || null }), [settled, set]);
  useEffect(() => setText((now) => (now.trim() === view.text ? now : view.text)), [view.text]);
  return (
    <SearchBox
      label="Search prompts, answers, tools, errors"
      placeholder="Search the text"
      value={text}
      onChange={(event) => setText(event.target.value)}
    />
  );
}

const YES_NO = [
  { value: "", label: "All" },
  { value: "yes", label: "Only" },
  { value: "no", label: "None" },
];

function FilterFields({ view, outline }: { view: View; outline: Outline | undefined }) {
  const { values, set } = view.search;
  const { mode } = view.filters;
  const parts = components(useScalars(useRun().id, "train").data?.keys() ?? []);
  return (
    <div className="ro-fields">
      {parts.length > 1 && (
        <Field label="Component">
          {(id) => (
            <Select id={id} value={values.component ?? ""} onChange={(event) => set({ component: event.target.value })}>
              <option value="">The whole reward</option>
              {parts.map((part) => (
                <option key={part}>{part}</option>
              ))}
            </Select>
          )}
        </Field>
      )}
      <Field label="Reward from">
        {(id) => <Decimal id={id} value={values.low ?? ""} onChange={(low) => set({ low })} />}
      </Field>
      <Field label="to">
        {(id) => <Decimal id={id} value={values.high ?? ""} onChange={(high) => set({ high })} />}
      </Field>
      <Field label="Step">
        {(id) => (
          <Decimal
            id={id}
            value={view.filters.step === undefined ? "" : String(shownStep(mode, view.filters.step))}
            onChange={(step) => set({ step: step && String(Math.max(0, wireStep(mode, Math.round(Number(step))))) })}
          />
        )}
      </Field>
      <Field label="Tool">
        {(id) => (
          <Select
            id={id}
            value={values.tool ?? ""}
            onChange={(event) => set({ tool: event.target.value })}
            disabled={!outline?.tools.length}
          >
            <option value="">{outline?.tools.length ? "Any or none" : "No tool was called"}</option>
            {outline?.tools.map((tool) => (
              <option key={tool}>{tool}</option>
            ))}
          </Select>
        )}
      </Field>
      <Field label="Ended">
        {(id) => (
          <Select id={id} value={values.ended ?? ""} onChange={(event) => set({ ended: event.target.value })}>
            <option value="">In any way</option>
            {outline?.terminations.map((each) => (
              <option key={each} value={each}>
                {each.replaceAll("_", " ")}
              </option>
            ))}
          </Select>
        )}
      </Field>
      <Field label="Failed">
        {() => (
          <Segments
            label="Failed"
            value={values.failed ?? ""}
            onChange={(failed) => set({ failed })}
            options={YES_NO}
          />
        )}
      </Field>
      <Field label="Left out of training">
        {() => (
          <Segments
            label="Left out of training"
            value={values.discarded ?? ""}
            onChange={(discarded) => set({ discarded })}
            options={YES_NO}
          />
        )}
      </Field>
    </div>
  );
}

function Decimal({ id, value, onChange }: { id: string; value: string; onChange: (text: string) => void }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const done = () => onChange(Number.isFinite(Number(text)) ? text.trim() : "");
  return (
    <Input
      id={id}
      inputMode="decimal"
      className="num"
      value={text}
      placeholder="any"
      onChange={(event) => setText(event.target.value)}
      onBlur={done}
      onKeyDown={(event) => event.key === "Enter" && done()}
    />
  );
}

/** Every filter in force, each with a way to drop it. */
function Chosen({ view }: { view: View }) {
  const { filters, search, text } = view;
  const chips: [string, string][] = [];
  if (text) chips.push(["q", `“${text}”`]);
  if (filters.step !== undefined) chips.push(["step", stepName(filters.mode, filters.step).toLowerCase()]);
  if (filters.promptMessageId) chips.push(["example", `example ${filters.promptMessageId.slice(0, 12)}`]);
  const pay = filters.component ?? "reward";
  if (filters.component) chips.push(["component", `by ${filters.component}`]);
  if (filters.lowest !== undefined) chips.push(["low", `${pay} ≥ ${format.number(filters.lowest)}`]);
  if (filters.highest !== undefined) chips.push(["high", `${pay} ≤ ${format.number(filters.highest)}`]);
  if (filters.tool) chips.push(["tool", `calls ${filters.tool}`]);
  if (filters.termination) chips.push(["ended", filters.termination.replaceAll("_", " ")]);
  if (filters.failed !== undefined) chips.push(["failed", filters.failed ? "failed" : "not failed"]);
  if (filters.discarded !== undefined)
    chips.push(["discarded", filters.discarded ? "left out of training" : "used in training"]);
  return (
    <div className="row">
      {chips.map(([name, label]) => (
        <Chip key={name} on label={label} onRemove={() => search.set({ [name]: null })}>
          <Plain text={label.slice(0, 60)} className="clip" />
        </Chip>
      ))}
      <Button kind="quiet" size="small" onClick={() => search.set(CLEARED)}>
        Clear all
      </Button>
    </div>
  );
}
