import { Plots } from "./Plots";

export default function Eval() {
  return <Plots mode="eval" />;
}
