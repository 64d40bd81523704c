// Every component of both models: ours green, the other grey, the difference with its interval and a word.
import type { Compared } from "../../../api/evals";
import { format, Info, Pill, Plain } from "../../../ui";
import { verdict } from "./words";

export function Bars({ components, other, n }: { components: Compared[]; other: string; n: number }) {
  const most = Math.max(0.01, ...components.flatMap((each) => [Math.abs(each.ours), Math.abs(each.other)]));
  const reach = Math.max(
    0.01,
    ...components.flatMap((each) => [Math.abs(each.delta), Math.abs(each.ciLow ?? 0), Math.abs(each.ciHigh ?? 0)]),
  );
  return (
    <div className="cm-bars">
      <div className="row small cm-legend">
        <span>
          <i className="cm-key cm-ours" /> this run
        </span>
        <span>
          <i className="cm-key cm-other" /> <Plain text={other.slice(0, 80)} />
        </span>
        <span className="muted">{format.plural(n, "example")} both played</span>
        <Info>
          The interval contains the true difference 95 times in 100, estimated from how much the examples vary. A
          component is “better” or “worse” only if its interval excludes zero.
        </Info>
      </div>
      {components.map((each) => (
        <Component key={each.name} each={each} most={most} reach={reach} />
      ))}
    </div>
  );
}

function Component({ each, most, reach }: { each: Compared; most: number; reach: number }) {
  const said = verdict(each);
  return (
    <div className={each.name === "reward" ? "cm-component cm-whole" : "cm-component"}>
      <div className="clip cm-name">
        <Plain text={each.name.slice(0, 120)} />
      </div>
      <div
        className="cm-pair"
        role="img"
        aria-label={`this run ${format.reward(each.ours)}, the other ${format.reward(each.other)}`}
      >
        <Bar value={each.ours} most={most} kind="ours" />
        <Bar value={each.other} most={most} kind="other" />
      </div>
      <Interval each={each} reach={reach} />
      <div className="cm-said">
        <strong className="num">{format.gain(each.delta)}</strong>
        <Pill tone={said.tone} title={said.hint}>
          {said.label}
        </Pill>
        <span className="muted small num">
          {each.ciLow === null ? "" : `${format.gain(each.ciLow)} to ${format.gain(each.ciHigh)}`}
        </span>
      </div>
    </div>
  );
}

function Bar({ value, most, kind }: { value: number; most: number; kind: "ours" | "other" }) {
  return (
    <span className="cm-bar">
      <span className="cm-track">
        <i className={`cm-${kind}`} style={{ width: `${(Math.abs(value) / most) * 100}%` }} />
      </span>
      <span className="num small">{format.reward(value)}</span>
    </span>
  );
}

/** The difference as a point with its interval, about zero. */
function Interval({ each, reach }: { each: Compared; reach: number }) {
  const at = (value: number) => `${50 + (value / reach) * 48}%`;
  const tone = verdict(each).tone;
  return (
    <span className={`cm-interval cm-${tone}`} aria-hidden="true">
      <i className="cm-zero" />
      {each.ciLow !== null && each.ciHigh !== null && (
        <i className="cm-range" style={{ left: at(each.ciLow), right: `calc(100% - ${at(each.ciHigh)})` }} />
      )}
      <i className="cm-point" style={{ left: at(each.delta) }} />
    </span>
  );
}
