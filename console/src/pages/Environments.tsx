import { useParams } from "@tanstack/react-router";
import { EnvironmentList } from "./environments/List";
import { EnvironmentView } from "./environments/View";
import "./environments/environments.css";

export default function Environments() {
  const { _splat: id } = useParams({ strict: false });
  return id ? <EnvironmentView key={id} id={id} /> : <EnvironmentList />;
}
