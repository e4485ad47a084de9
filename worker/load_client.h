#pragma once

#include "absl/status/statusor.h"
#include "core/work_counter.h"
#include "data/dataset.h"
#include "training/api/trainer.h"
#include "worker/phase.h"

namespace macaw::worker {

// A client by its number in the run, which decides its randomness, and by its place in this node's
// dataset, which decides its rows.
struct Subject {
  ClientId client, place;
};

// The client's rows of one split, with the labels and images that are its own (data/label_map.h)
// and the key of the noise that belongs to them. All training on a client's rows and all evaluation
// of them gets them here. Counts one piece of work, unless `work` is null.
absl::StatusOr<data::Rows> LoadRows(const RunContext& context, const data::Dataset& dataset,
                                    const Subject& subject, data::Split split, WorkCounter* work);

// Rows begin … end−1 of a central set (`rows`). Under concept shift it is evaluated as each of the
// groups sees it, one after the other: row r of group g is row g · (its rows) + r. Errors:
// kOutOfRange for rows that do not exist, or that are of two groups.
absl::StatusOr<data::Rows> OfTheCentralRows(const RunContext& context, data::Rows rows,
                                            uint64_t begin, uint64_t end);

// Those of rows begin … end−1 of a central set that are not of the class that a backdoor aims at,
// with its trigger and that class (data/trigger.h). Rows are as group 0 of concept shift sees them.
absl::StatusOr<data::Rows> StampedCentralRows(const RunContext& context, data::Rows rows,
                                              uint64_t begin, uint64_t end);

// The training rows that are the client's own, also where one client trains on everybody's
// (data/together.h); with evaluation.heldout, the validation rows of a client that has none. For
// tuning a model to the client before it is evaluated (evaluation.fine_tune).
absl::StatusOr<data::Rows> LoadRowsToTuneOn(const RunContext& context, const data::Dataset& dataset,
                                            const Subject& subject, WorkCounter* work);

// What a trainer needs of a client for one turn: the rows of every split that it has.
absl::StatusOr<training::ClientTask> LoadClient(const RunContext& context,
                                                const data::Dataset& dataset,
                                                const Subject& subject, Round round, Phase phase,
                                                WorkCounter* work);

}  // namespace macaw::worker
