import { useTraining } from "../../api/training";
import { Fold, format, Icon, Pill, Ticked } from "../../ui";
import { useRun } from "./context";
import "./training.css";
import { MARK_WORDS } from "./words";

/** Above so many it is folded. */
const FEW = 4;

/** What the trainer put right while it trained, as a list: the same that is marked in the chart of the reward. */
export function Interventions() {
  const { id } = useRun();
  const { marks } = useTraining(id);
  if (marks.length === 0) return null;
  return (
    <Fold title="During training" open={marks.length <= FEW} aside={format.plural(marks.length, "intervention")}>
      <ul className="on-the-way">
        {marks.map(({ id, kind, step, message }) => {
          const { word, icon, tone } = MARK_WORDS[kind];
          return (
            <li key={id}>
              <span className="num muted">step {step.toLocaleString("en-US")}</span>
              <Pill tone={tone}>
                <Icon name={icon} size={11} />
                {word}
              </Pill>
              <span>
                <Ticked text={message} />
              </span>
            </li>
          );
        })}
      </ul>
    </Fold>
  );
}
