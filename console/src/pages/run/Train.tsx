import { Before } from "./Before";
import { Learned } from "./Learned";
import { Plots } from "./Plots";

export default function Train() {
  return (
    <div className="stack">
      <Before />
      <Plots mode="train" story={<Learned />} />
    </div>
  );
}
