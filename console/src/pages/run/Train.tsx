import { Before } from "./Before";
import { Learned } from "./Learned";
import { RunCharts } from "./Charts";

export default function Train() {
  return (
    <div className="stack">
      <Before />
      <RunCharts mode="train" story={<Learned />} />
    </div>
  );
}
