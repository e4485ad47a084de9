#include "worker/load_client.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "data/label_map.h"
#include "data/trigger.h"

namespace macaw::worker {
namespace {

// Makes rows of the dataset those of the client in this run.
absl::StatusOr<data::Rows> OfTheRun(const RunContext& context, const data::Dataset& dataset,
                                    const Subject& subject, data::Split split, data::Rows rows,
                                    WorkCounter* work) {
  if (work != nullptr) work->Count();
  rows.client_name = dataset.ClientName(subject.place);
  const uint64_t clients = context.run.clients;
  rows.noise = {.seed = context.run.seed,
                .client = subject.client,
                .split = split,
                .clients = clients > 0 ? clients : dataset.info().clients};
  const TransformConfig& transform = context.run.transform;
  const AttackConfig& attack = context.run.attack;
  const bool hostile = split == data::Split::kTrain && context.hostile.Contains(subject.client);
  const bool flipped = hostile && attack.kind == "label-flip";
  const std::vector<int64_t>& shape = context.run.model.input_shape;
  if (hostile && attack.backdoor() && !transform.changes_rows())
    return data::Poisoned(std::move(rows), attack, shape);
  if (!transform.changes_rows() && !flipped) return rows;
  std::vector<data::RowChanges> changes;
  const auto add = [&](ClientId client) {
    data::NoiseKey key = rows.noise;
    key.client = client;
    changes.push_back(data::ChangesOf(transform, key, LabelClasses(context.run)));
    changes.back().flipped = flipped;
  };
  for (const data::RowOwner& owner : rows.owners) add(owner.client);
  if (rows.owners.empty()) add(subject.client);
  MACAW_ASSIGN_OR_RETURN(rows, data::ApplyChanges(std::move(rows), changes, shape));
  if (hostile && attack.backdoor()) return data::Poisoned(std::move(rows), attack, shape);
  return rows;
}

// Rows begin … end−1 of these.
data::Rows PartOf(data::Rows rows, uint64_t begin, uint64_t end) {
  if (!rows.index.empty()) {
    rows.index = rows.index.subspan(begin, end - begin);
    return rows;
  }
  data::ExampleBlock& block = rows.block;
  block.features += begin * block.row_bytes;
  if (block.classes != nullptr) block.classes += begin;
  if (block.targets != nullptr) block.targets += begin;
  if (block.lengths != nullptr) block.lengths += begin;
  block.count = end - begin;
  return rows;
}

}  // namespace

absl::StatusOr<data::Rows> OfTheCentralRows(const RunContext& context, data::Rows rows,
                                            uint64_t begin, uint64_t end) {
  const TransformConfig& transform = context.run.transform;
  const uint64_t size = rows.size(), group = size > 0 ? begin / size : 0;
  const uint64_t first = begin - group * size;
  if (group >= ConceptGroups(transform, context.run.seed).count() || begin > end ||
      end - begin > size - first) {
    return absl::OutOfRangeError(
        absl::StrCat("asked to evaluate rows ", begin, " to ", end, " of a central set of ", size));
  }
  rows = PartOf(std::move(rows), first, first + (end - begin));
  const data::RowChanges changes = data::ShiftOf(
      transform, context.run.seed, static_cast<uint32_t>(group), LabelClasses(context.run));
  return data::ApplyChanges(std::move(rows), {&changes, 1}, context.run.model.input_shape);
}

absl::StatusOr<data::Rows> StampedCentralRows(const RunContext& context, data::Rows rows,
                                              uint64_t begin, uint64_t end) {
  MACAW_ASSIGN_OR_RETURN(rows, OfTheCentralRows(context, std::move(rows), begin, end));
  return data::Stamped(std::move(rows), context.run.attack, context.run.model.input_shape);
}

absl::StatusOr<data::Rows> LoadRows(const RunContext& context, const data::Dataset& dataset,
                                    const Subject& subject, data::Split split, WorkCounter* work) {
  MACAW_ASSIGN_OR_RETURN(data::Rows rows, dataset.Client(subject.place, split));
  return OfTheRun(context, dataset, subject, split, std::move(rows), work);
}

absl::StatusOr<data::Rows> LoadRowsToTuneOn(const RunContext& context, const data::Dataset& dataset,
                                            const Subject& subject, WorkCounter* work) {
  MACAW_ASSIGN_OR_RETURN(data::Rows rows, dataset.OwnTrainingRows(subject.place));
  if (rows.empty() && context.run.evaluation.heldout)
    return LoadRows(context, dataset, subject, data::Split::kValidation, work);
  return OfTheRun(context, dataset, subject, data::Split::kTrain, std::move(rows), work);
}

absl::StatusOr<training::ClientTask> LoadClient(const RunContext& context,
                                                const data::Dataset& dataset,
                                                const Subject& subject, Round round, Phase phase,
                                                WorkCounter* work) {
  training::ClientTask task{
      .seed = context.run.seed, .round = round, .phase = phase, .client = subject.client};
  for (const auto& [split, rows] : {std::pair(data::Split::kTrain, &task.train),
                                    std::pair(data::Split::kValidation, &task.validation),
                                    std::pair(data::Split::kTest, &task.test)}) {
    if (dataset.Examples(subject.place, split) == 0) continue;
    MACAW_ASSIGN_OR_RETURN(*rows, LoadRows(context, dataset, subject, split, work));
  }
  return task;
}

}  // namespace macaw::worker
