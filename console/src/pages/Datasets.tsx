import { useParams } from "@tanstack/react-router";
import { DatasetList } from "./datasets/List";
import { DatasetView } from "./datasets/View";
import "./datasets/datasets.css";

export default function Datasets() {
  const { _splat: path } = useParams({ strict: false });
  return path ? <DatasetView key={path} path={path} /> : <DatasetList />;
}
