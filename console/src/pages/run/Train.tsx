import { Before } from "./Before";
import { RunCharts } from "./Charts";
import { Learned } from "./Learned";

export default function Train() {
  return (
    <div className="stack">
      <Before />
      <RunCharts mode="train" story={<Learned />} />
    </div>
  );
}
