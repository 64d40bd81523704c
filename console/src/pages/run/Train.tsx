import { BeforeTraining } from "./BeforeTraining";
import { RunCharts } from "./Charts";
import { Learned } from "./Learned";

export default function Train() {
  return (
    <div className="stack">
      <BeforeTraining />
      <RunCharts mode="train" story={<Learned />} />
    </div>
  );
}
