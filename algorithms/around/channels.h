#pragma once

#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/algorithm.h"

namespace macaw::algorithms {

// Between a rule, which names its vectors, and what carries them, which counts them: for server,
// worker and tests, not for rules. Results that do not fit the schema are Internal errors that name
// the algorithm, the channel and what was expected.

// Whether `phases` of a channel or metric contain the phase; an empty list contains all.
bool InPhase(const std::vector<Phase>& phases, Phase phase);

// The tensors of a layout in double precision.
LayoutPtr InDouble(const LayoutPtr& layout);

// The layouts of what a client gets in a phase, in the order of the schema.
std::vector<LayoutPtr> DownLayouts(const Schema& schema, Phase phase);
// The layout of the model as it is sent: of Schema::parts what is trained.
const LayoutPtr& SentModelLayout(const Schema& schema);
// What is sent down in a phase: the vectors of DownLayouts, but for the model, which is that of
// SentModelLayout.
absl::StatusOr<std::vector<ConstVectorView>> DownViews(const Schema& schema, Phase phase,
                                                       const Broadcast& broadcast);
// For ClientContext::broadcast: `sent` (parallel to DownLayouts), with an empty view for each
// channel that is not sent.
std::vector<ConstVectorView> ParallelToDown(const Schema& schema, Phase phase,
                                            std::span<const ConstVectorView> sent);

// The channels up of a phase, then those that carry its clients' metrics (a number each).
std::vector<aggregation::ChannelSpec> UpChannels(const Schema& schema, Phase phase);
// A client's values for them. The metrics' vectors are of `workspace`.
using UpValue = std::variant<ConstVectorView, Displacement>;
absl::StatusOr<std::vector<UpValue>> UpValues(const Schema& schema, Phase phase,
                                              const ClientResult& result, Workspace& workspace);
// Whether each channel up of the phase is there once, with its layout, and none else. Guard asks it
// of a rule itself, so what stands around a rule may read its vectors.
absl::Status CheckUp(const Schema& schema, Phase phase, const ClientResult& result);
// Whether the ends of stages are needed after OnHost. With kMayGo an end in memory that is shared
// with a program gives its space on disk back as it is read (core/file_blocks.h); the program
// writes it anew in the next turn.
enum class Ends : uint8_t { kStay, kMayGo };
// The values, of these channels, as vectors on the host: what is described is computed, in
// `workspace`. Errors are a device's.
absl::StatusOr<std::vector<ConstVectorView>> OnHost(
    std::span<const aggregation::ChannelSpec> channels, std::span<const UpValue> values,
    Workspace& workspace, Ends ends = Ends::kStay);
// Both: a client's values as vectors on the host.
absl::StatusOr<std::vector<ConstVectorView>> UpViews(const Schema& schema, Phase phase,
                                                     const ClientResult& result,
                                                     Workspace& workspace, Ends ends = Ends::kStay);
// The next state, parallel to Schema::state: an item that the result lacks is that of `before`
// (ClientContext::state). Empty if the result has none: the state does not change.
absl::StatusOr<std::vector<ConstVectorView>> StateViews(const Schema& schema,
                                                        std::span<const ConstVectorView> before,
                                                        const ClientResult& result);

// Takes the metrics' channels of `phase` out of the aggregate: a value for each that has one.
std::vector<std::pair<std::string, double>> TakeMetrics(const Schema& schema, Phase phase,
                                                        aggregation::Aggregate& aggregate);

// Why a round cannot have another phase after this one; OK otherwise.
absl::Status CheckNextPhase(const Schema& schema, Phase phase);
// Whether what a server half saves has these layouts alone, so that a resume can read it.
absl::Status CheckSaved(const Schema& schema, const ServerState& saved,
                        const std::vector<LayoutPtr>& layouts);

// Why a schema cannot be; OK otherwise.
absl::Status CheckSchema(const Schema& schema, const LayoutPtr& model);

}  // namespace macaw::algorithms
