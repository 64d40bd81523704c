import { Room } from "../playground/Room";
import { useRun } from "./context";

export default function Playground() {
  const { id, run, live } = useRun();
  return <Room runId={id} live={live} rows={run.taskDigest !== ""} />;
}
