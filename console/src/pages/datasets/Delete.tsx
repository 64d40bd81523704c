import { datasetName, useDeleteDataset } from "../../api/datasets";
import { Confirm, ErrorNote, Plain } from "../../ui";

type DeleteProps = { path: string; onClose: () => void; onDone?: () => void };

export function DeleteDataset({ path, onClose, onDone = onClose }: DeleteProps) {
  const remove = useDeleteDataset();
  return (
    <Confirm
      open
      onClose={onClose}
      title="Delete this dataset?"
      action="Delete it"
      busy={remove.isPending}
      onConfirm={() => remove.mutate(path, { onSuccess: onDone })}
    >
      <div className="stack">
        <p>
          <strong>
            <Plain text={datasetName(path)} />
          </strong>{" "}
          is deleted. Runs launched with it keep their copy.
        </p>
        {remove.isError && <ErrorNote error={remove.error} />}
      </div>
    </Confirm>
  );
}
