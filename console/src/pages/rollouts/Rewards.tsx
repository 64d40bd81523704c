// A rollout's reward, part by part. What could not be scored says why; it is never shown as 0.
import type { Details } from "../../api/rollouts";
import { cx, format, Plain } from "../../ui";

export function Rewards({ details, brief }: { details: Details; brief?: boolean }) {
  const most = Math.max(1, ...details.rewards.map((each) => Math.abs(each.value)));
  return (
    <div className="ro-rewards">
      {!brief && (
        <div className="ro-total">
          <span className="ro-total-value num">{format.reward(details.totalReward)}</span>
          <span className="muted small">{details.totalReward === null ? "not scored" : "reward"}</span>
        </div>
      )}
      <dl>
        {brief && (
          <Bar
            name="Reward"
            value={details.totalReward}
            most={Math.max(most, Math.abs(details.totalReward ?? 0))}
            strong
          />
        )}
        {details.rewards.map((each) => (
          <Bar key={each.name} name={each.name} value={each.value} most={most} />
        ))}
        {Object.entries(details.unscored).map(([name, why]) => (
          <div key={name} className="ro-unscored">
            <dt>
              <Plain text={name} />
            </dt>
            <dd className="bad small">
              not scored: <Plain text={String(why).slice(0, 2000)} />
            </dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

function Bar({ name, value, most, strong }: { name: string; value: number | null; most: number; strong?: boolean }) {
  const width = value === null ? 0 : Math.min(1, Math.abs(value) / most) * 100;
  return (
    <div className={cx("ro-bar", strong && "strong")}>
      <dt className="clip">
        <Plain text={name} />
      </dt>
      <dd className="num">{format.reward(value)}</dd>
      <span className="ro-track" aria-hidden="true">
        <i className={value !== null && value < 0 ? "ro-minus" : undefined} style={{ width: `${width}%` }} />
      </span>
    </div>
  );
}
