import { RunCharts } from "./Charts";

export default function Eval() {
  return <RunCharts mode="eval" />;
}
