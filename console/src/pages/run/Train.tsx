import { Plots } from "./Plots";

export default function Train() {
  return <Plots mode="train" />;
}
