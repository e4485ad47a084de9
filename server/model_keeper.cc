#include "server/model_keeper.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/frozen.h"
#include "core/file_blocks.h"
#include "core/status.h"
#include "proto/fleet/compact_vector.h"
#include "proto/fleet/vector_codec.h"

namespace macaw::server {
namespace {

// A model that is kept for clients that began from it, in a saved state: "model_after_12". A rule
// leaves vectors alone that are not its own.
constexpr absl::string_view kOlder = "model_after_";
// A model without a client that is still to be evaluated, likewise: "without_17".
constexpr absl::string_view kWithout = "without_";

// A vector as it is sent. Of a large one both lie in files, and are read next piece by piece.
fleet::Blob BlobOf(const ConstVectorView& vector) {
  fleet::Blob blob = fleet::Blob::Of(fleet::EncodeVectors({&vector, 1}));
  LeaveToCache(vector.bytes);
  LeaveToCache(blob.bytes->bytes());
  return blob;
}

}  // namespace

absl::StatusOr<ModelKeeper> ModelKeeper::Make(const algorithms::Description& algorithm,
                                              algorithms::Setup setup, FlatVector initial,
                                              const EvaluationConfig& evaluation) {
  ModelKeeper keeper;
  keeper.layout_ = setup.layout;
  keeper.seed_ = setup.seed;
  keeper.bound_ = setup.contribution_bound;
  keeper.keeps_older_ = setup.asynchronous;
  MACAW_ASSIGN_OR_RETURN(keeper.schema_, algorithms::MakeSchema(algorithm, setup));
  keeper.sent_layout_ = algorithms::SentModelLayout(keeper.schema_);
  keeper.several_phases_ = HasLaterPhases(keeper.schema_);
  if (keeper.schema_.parts != nullptr) keeper.TakeBaseOf(initial);
  if (evaluation.leave_one_out > 0) {
    MACAW_ASSIGN_OR_RETURN(keeper.leave_one_out_,
                           LeaveOneOut::Make(algorithm, keeper.schema_, setup, initial.Clone(),
                                             evaluation.leave_one_out));
  }
  if (!evaluation.unlearn.empty()) {
    MACAW_ASSIGN_OR_RETURN(keeper.unlearning_,
                           Unlearning::Make(algorithm, setup, initial, evaluation.unlearn));
  }
  MACAW_ASSIGN_OR_RETURN(keeper.algorithm_, algorithm.server(setup, std::move(initial)));
  // Now, rather than when states are lost: a rule that says that it sums may have no such method.
  if (keeper.begins_anew()) MACAW_RETURN_IF_ERROR(keeper.algorithm_->ForgetStates());
  // Likewise, rather than when the run is resumed.
  MACAW_RETURN_IF_ERROR(
      algorithms::CheckSaved(keeper.schema_, keeper.algorithm_->Save(), keeper.Layouts()));
  return keeper;
}

absl::StatusOr<PhaseModels> ModelKeeper::Open(const PhaseOrder& order) {
  sum_.reset();
  order_ = order;
  if (keeps_parts()) parts_.Open(order, algorithms::UpChannels(schema_, order.phase));
  if (leaves_out()) leave_one_out_->Open(order, algorithm_->Save());
  if (unlearning_.has_value()) unlearning_->Open(order, *algorithm_);
  MACAW_ASSIGN_OR_RETURN(const algorithms::Broadcast broadcast,
                         algorithm_->Configure(ContextOf(order.round, order.phase)));
  MACAW_RETURN_IF_ERROR(algorithms::DownViews(schema_, order.phase, broadcast).status());
  if (algorithms::UpChannels(schema_, order.phase).empty()) {
    return absl::InternalError(absl::StrCat(schema_.whose,
                                            ": its schema has no channel up in phase ",
                                            order.phase.value, ", which Apply asked for"));
  }
  std::vector<fleet::Blob> channels;
  for (const algorithms::DownChannel& channel : schema_.down) {
    if (!algorithms::InPhase(channel.phases, order.phase)) continue;
    fleet::Blob blob =
        Encode(channel, *std::ranges::find(broadcast, channel.name, &algorithms::DownVector::name));
    const bool is_model = &channel == &schema_.down.front();
    channels.push_back(is_model ? Whole(std::move(blob)) : std::move(blob));
  }
  PhaseModels models = fleet::Broadcast::Of(std::move(channels));
  if (!keeps_older_) return models;
  MACAW_RETURN_IF_ERROR(ModelOf(models.newest).status());
  const Round newest(order.round.value - 1);
  models_.insert_or_assign(newest, models.newest);
  std::erase_if(models_, [&](const auto& model) {
    const uint32_t age = newest.value - model.first.value;
    const auto of_age = [age](const std::vector<uint32_t>& ages) {
      return std::ranges::find(ages, age) != ages.end();
    };
    return age > 0 && !of_age(order.staleness) && !of_age(order.kept);
  });
  for (const uint32_t staleness : order.staleness) {
    const auto kept = models_.find(Round(newest.value - staleness));
    if (kept == models_.end()) {
      return absl::InternalError(absl::StrCat("round ", order.round.value, " needs the model of ",
                                              staleness, " rounds before, which was not kept"));
    }
    models.older.push_back({staleness, kept->second});
  }
  return models;
}

Digest ModelKeeper::DigestOfWhole(ConstVectorView sent) const {
  return split_ != nullptr ? DigestOfTensors(split_->Tensors(sent)) : DigestOfValues(sent);
}

absl::Status ModelKeeper::MakeWhole(WithoutClient& without) {
  without.model = Whole(std::move(without.model));
  MACAW_ASSIGN_OR_RETURN(const ConstVectorView model, ModelOf(without.model));
  without.digest = DigestOfWhole(model);
  return absl::OkStatus();
}

std::vector<UnlearnedModel> ModelKeeper::UnlearnedModels() {
  std::vector<UnlearnedModel> models;
  for (const Unlearning::Model& one : Unlearned()) {
    fleet::Blob sent = fleet::Blob::Of(fleet::EncodeVectors({&one.model, 1}));
    models.push_back({one.client, one.rounds, Whole(std::move(sent)), DigestOfWhole(one.model)});
  }
  return models;
}

absl::StatusOr<ConstVectorView> ModelKeeper::ModelOf(const fleet::Broadcast& broadcast) const {
  return ModelOf(broadcast.channels.at(0));
}

absl::StatusOr<ConstVectorView> ModelKeeper::ModelOf(const fleet::Blob& model) const {
  const fleet::Blob& sent = model.has_parts() ? model.trained() : model;
  MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> views,
                         fleet::DecodeVectors(sent.bytes->bytes(), {&sent_layout_, 1}));
  return views[0];
}

void ModelKeeper::SetBase(ConstVectorView base) {
  split_ = std::make_shared<const SplitModel>(schema_.parts, base);
  names_.emplace(split_);
}

void ModelKeeper::TakeBaseOf(const FlatVector& model) {
  FlatVector base(schema_.parts->base.layout());
  schema_.parts->base.Extract(model.view(), base.view());
  const ConstVectorView view = std::as_const(base).view();
  if (split_ == nullptr || !std::ranges::equal(view.bytes, split_->base_view().bytes))
    SetBase(view);
}

FlatVector ModelKeeper::AsSent(const FlatVector& model) const {
  if (split_ == nullptr || !algorithms::SameLayout(model.layout().get(), layout_.get()))
    return model.Clone();
  FlatVector sent(sent_layout_);
  split_->parts().trained.Extract(model.view(), sent.view());
  return sent;
}

fleet::Blob ModelKeeper::Encode(const algorithms::DownChannel& channel,
                                const algorithms::DownVector& down) {
  const ConstVectorView& vector = down.vector;
  // The evaluation of the last round may have encoded the model already.
  if (vector.bytes.data() == Model().bytes.data()) return SentModel();
  fleet::Blob& sent = sent_[channel.name];
  const bool same = sent.bytes != nullptr && fleet::Holds(sent.bytes->bytes(), vector);
  // A change has a form of its own in each round, also where it changes nothing.
  if (same && (down.before.empty() || order_->phase != Phase(0))) return sent;
  const ValueForms forms = {.short_floats = true, .levels = channel.levels};
  const auto form_of = [](std::optional<AlignedBuffer> bytes, const Digest& base) {
    std::vector<fleet::CompactForm> compact;
    if (!bytes.has_value()) return compact;
    fleet::Blob form = fleet::Blob::Of(*std::move(bytes));
    compact.push_back({base, form.digest, form.size, std::move(form.bytes)});
    return compact;
  };
  std::vector<fleet::CompactForm> compact;
  if (!down.before.empty()) {
    const bool was_last = sent.bytes != nullptr && fleet::Holds(sent.bytes->bytes(), down.before);
    const Digest base =
        was_last ? sent.digest : fleet::Blob::Of(fleet::EncodeVectors({&down.before, 1})).digest;
    compact = form_of(fleet::EncodeCompactChange(down.before, down.change, vector, forms), base);
  } else if (channel.coded) {
    compact = form_of(fleet::EncodeCompact(vector, forms), {});
  }
  sent = BlobOf(vector);
  sent.compact = std::move(compact);
  return sent;
}

bool ModelKeeper::collects() const {
  constexpr uint64_t kFew = 64;  // bytes
  return std::ranges::any_of(schema_.up, [](const aggregation::ChannelSpec& channel) {
    return channel.reduction == aggregation::Reduction::kCollect && channel.layout->bytes() > kFew;
  });
}

absl::StatusOr<LargestSums> ModelKeeper::MostSums() const {
  if (!order_.has_value()) return absl::FailedPreconditionError("no round is open");
  const std::vector<aggregation::ChannelSpec> channels =
      algorithms::UpChannels(schema_, order_->phase);
  LargestSums most{.of_a_client = aggregation::ExactSum::BytesOfAClient(channels),
                   .clients = order_->grid.total_multiplicity};
  MACAW_ASSIGN_OR_RETURN(most.bytes,
                         aggregation::ExactSum::MostEncodedBytes(channels, order_->grid));
  // A node with a device counts a compact form, which for a few numbers may be the larger one.
  MACAW_ASSIGN_OR_RETURN(const aggregation::ExactSum nobody,
                         aggregation::ExactSum::Make(channels, order_->grid));
  most.alone = std::max(most.Of(1), nobody.MostBytesAlone());
  return most;
}

absl::StatusOr<aggregation::ExactSum> ModelKeeper::Decode(const fleet::Part& part) const {
  if (!order_.has_value() || part.round != order_->round || part.phase != order_->phase) {
    return absl::FailedPreconditionError("that round and phase is not open");
  }
  if (part.sums.bytes == nullptr)
    return absl::InvalidArgumentError("the part names clients but brings no sums");
  // Before memory is made for each of them.
  const uint64_t held =
      aggregation::ExactSum::ClientsIn(part.sums.bytes->bytes()).value_or(part.included.size());
  if (held != part.included.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the part names ", part.included.size(), " clients but its sums hold ", held));
  }
  MACAW_ASSIGN_OR_RETURN(
      aggregation::ExactSum sum,
      aggregation::ExactSum::Decode(part.sums.bytes, algorithms::UpChannels(schema_, order_->phase),
                                    order_->grid));
  if (leaves_out() && part.included.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("round ", part.round.value, " asks for a part for each client (", kLeaveOneOut,
                     "), and this one has ", part.included.size()));
  }
  const auto apart = std::ranges::find_if(part.included, [&](const fleet::ClientRecord& record) {
    return part.included.size() > 1 && IsApart(record.attempt.client);
  });
  if (apart != part.included.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "round ", part.round.value, " asks for a part of client ", apart->attempt.client.value,
        " alone (", kUnlearn, "), and it came with ", part.included.size() - 1, " others"));
  }
  uint64_t multiplicity = 0;
  double weight = 0;
  for (const fleet::ClientRecord& record : part.included) {
    multiplicity += record.multiplicity;
    weight += record.multiplicity * record.weight;
  }
  // If a sum weighed more than its clients, later parts would overflow the round's plan.
  if (sum.multiplicity() != multiplicity || !(std::fabs(sum.weight() - weight) <= 1e-9 * weight)) {
    return absl::InvalidArgumentError(absl::StrCat("the part names clients that weigh ", weight,
                                                   " but its sums hold ", sum.weight()));
  }
  std::vector<std::pair<ClientId, uint32_t>> clients;
  for (const fleet::ClientRecord& record : part.included)
    clients.emplace_back(record.attempt.client, record.multiplicity);
  std::ranges::sort(clients);
  if (!sum.CollectedFrom(clients)) {
    return absl::InvalidArgumentError("its sums hold vectors of other clients than the part names");
  }
  return sum;
}

absl::Status ModelKeeper::Add(aggregation::ExactSum&& sum, ClientId client) {
  if (!order_.has_value()) return absl::FailedPreconditionError("no round is open");
  if (keeps_parts()) return parts_.Add(std::move(sum), client, IsApart(client));
  if (sum_.has_value()) return sum_->Merge(std::move(sum));
  sum_ = std::move(sum);
  return absl::OkStatus();
}

void ModelKeeper::DropSum() {
  sum_.reset();
  parts_.Drop();
}

absl::StatusOr<bool> ModelKeeper::Apply(Round round, Phase phase) {
  const std::vector<aggregation::ChannelSpec> channels = algorithms::UpChannels(schema_, phase);
  const bool kept = keeps_parts();
  if (kept) {
    MACAW_ASSIGN_OR_RETURN(sum_, parts_.Sum());
  }
  if (!sum_.has_value()) {  // no part was added
    MACAW_ASSIGN_OR_RETURN(sum_, aggregation::ExactSum::Make(channels, order_->grid));
  }
  MACAW_ASSIGN_OR_RETURN(aggregation::Aggregate aggregate,
                         std::move(*std::exchange(sum_, std::nullopt)).Report());
  if (phase == Phase(0)) {
    headroom_.clear();
    metrics_.clear();
  }
  sent_model_.reset();
  TakeMetrics(phase, aggregate);
  for (size_t c = 0; c < aggregate.channels.size(); ++c) {
    const aggregation::AggregatedChannel& channel = aggregate.channels[c];
    const double used = channel.max_abs / channels[c].bound;
    const auto before = std::ranges::find(headroom_, channel.name, &Numbers::value_type::first);
    if (before == headroom_.end()) {
      headroom_.emplace_back(channel.name, used);
    } else {
      before->second = std::max(before->second, used);
    }
  }
  if (leaves_out()) leave_one_out_->Compare(aggregate);
  algorithms::ServerContext context = ContextOf(round, phase);
  // A round of one client: the model from which it began. Without an age that is the newest one, as
  // it was sent, which a codec of [broadcast] may have changed.
  if (keeps_older_ && order_->staleness.size() <= 1) {
    if (!order_->staleness.empty()) context.staleness = order_->staleness.front();
    MACAW_ASSIGN_OR_RETURN(context.base,
                           ModelOf(models_.at(Round(round.value - 1 - context.staleness))));
  }
  if (several_phases_ && !inside_round_) before_round_ = Save();
  MACAW_ASSIGN_OR_RETURN(const algorithms::AfterApply next,
                         algorithm_->Apply(context, std::move(aggregate)));
  inside_round_ = next == algorithms::AfterApply::kNextPhase;
  if (inside_round_) MACAW_RETURN_IF_ERROR(algorithms::CheckNextPhase(schema_, phase));
  several_phases_ = several_phases_ || inside_round_;
  if (!inside_round_) before_round_.reset();
  if (!kept) return inside_round_;
  if (next == algorithms::AfterApply::kNextPhase)
    return CannotLeaveOutOfPhases(leaves_out() ? kLeaveOneOut : kUnlearn, schema_.whose);
  if (leaves_out()) {
    MACAW_ASSIGN_OR_RETURN(without_, leave_one_out_->Models(parts_, schema_, seed_));
    for (WithoutClient& one : without_) MACAW_RETURN_IF_ERROR(MakeWhole(one));
  }
  if (unlearning_.has_value()) MACAW_RETURN_IF_ERROR(unlearning_->Apply(parts_, schema_, seed_));
  parts_.Drop();
  return false;
}

absl::Status ModelKeeper::ForgetStates() {
  if (unlearning_.has_value()) MACAW_RETURN_IF_ERROR(unlearning_->ForgetStates());
  return algorithm_->ForgetStates();
}

std::vector<std::string> ModelKeeper::BoundedByTheRun() const {
  std::vector<std::string> names;
  for (const aggregation::ChannelSpec& channel : schema_.up) {
    const bool sum =
        aggregation::IsSum(channel.reduction) && channel.layout->dtype() == DType::kF32;
    if (sum && channel.bound == bound_) names.push_back(channel.name);
  }
  return names;
}

void ModelKeeper::TakeMetrics(Phase phase, aggregation::Aggregate& aggregate) {
  for (const auto& [name, value] : algorithms::TakeMetrics(schema_, phase, aggregate)) {
    const auto spec = std::ranges::find(schema_.metrics, name, &algorithms::MetricSpec::name);
    const bool adds = spec->reduction == aggregation::Reduction::kFixedSum;
    double& metric = metrics_.try_emplace(name, 0.0).first->second;
    metric = adds ? metric + value : value;
  }
}

ModelKeeper::Numbers ModelKeeper::metrics() const {
  Numbers metrics;
  for (const algorithms::MetricSpec& spec : schema_.metrics) {
    const auto found = metrics_.find(spec.name);
    if (found != metrics_.end()) metrics.emplace_back(*found);
  }
  return metrics;
}

fleet::Blob ModelKeeper::SentModel() {
  if (!sent_model_.has_value()) {
    sent_model_ = BlobOf(Model());
  }
  return *sent_model_;
}

fleet::Blob ModelKeeper::EvaluatedBlob() {
  std::vector<ConstVectorView> models = MoreModels();
  if (models.empty()) return ModelBlob();
  models.insert(models.begin(), Model());
  return fleet::Blob::Of(fleet::EncodeVectors(models));
}

algorithms::ServerState ModelKeeper::Save() const {
  algorithms::ServerState state = algorithm_->Save();
  for (const auto& [round, broadcast] : models_) {
    state.vectors.emplace(
        absl::StrCat(kOlder, round.value),
        FlatVector::CopyOf(*ModelOf(broadcast), sent_layout_));  // Open has read it
  }
  for (const WithoutClient& one : without_) {
    state.vectors.emplace(absl::StrCat(kWithout, one.client.value),
                          FlatVector::CopyOf(*ModelOf(one.model), sent_layout_));
  }
  if (unlearning_.has_value()) unlearning_->Save(state);
  return state;
}

absl::Status ModelKeeper::Load(const algorithms::ServerState& state) {
  if (split_ != nullptr) MACAW_RETURN_IF_ERROR(TakeSavedBase(state));
  sent_model_.reset();
  models_.clear();
  without_.clear();
  for (const auto& [name, model] : state.vectors) {
    absl::string_view number = name;
    if (uint64_t client = 0;
        absl::ConsumePrefix(&number, kWithout) && absl::SimpleAtoi(number, &client)) {
      const ConstVectorView view = model.view();
      without_.push_back(
          {.client = ClientId(client), .model = fleet::Blob::Of(fleet::EncodeVectors({&view, 1}))});
      MACAW_RETURN_IF_ERROR(MakeWhole(without_.back()));
      continue;
    }
    number = name;
    uint32_t round = 0;
    if (!absl::ConsumePrefix(&number, kOlder) || !absl::SimpleAtoi(number, &round)) continue;
    const FlatVector sent = AsSent(model);
    const ConstVectorView view = sent.view();
    models_.emplace(Round(round), fleet::Broadcast::Of(
                                      {Whole(fleet::Blob::Of(fleet::EncodeVectors({&view, 1})))}));
  }
  std::ranges::sort(without_, {}, &WithoutClient::client);
  if (unlearning_.has_value()) MACAW_RETURN_IF_ERROR(unlearning_->Load(state));
  return algorithm_->Load(state);
}

absl::StatusOr<bool> ModelKeeper::LeaveRound() {
  if (!inside_round_) return true;
  if (!before_round_.has_value()) return false;
  MACAW_RETURN_IF_ERROR(Load(*std::exchange(before_round_, std::nullopt)));
  inside_round_ = false;
  return true;
}

absl::Status ModelKeeper::TakeSavedBase(const algorithms::ServerState& state) {
  const auto whole = state.vectors.find(algorithms::kWholeModel);
  if (whole == state.vectors.end()) return absl::OkStatus();
  if (!algorithms::SameLayout(whole->second.layout().get(), layout_.get())) {
    return absl::InvalidArgumentError(absl::StrCat("the saved vector '", algorithms::kWholeModel,
                                                   "' has another layout than the model"));
  }
  TakeBaseOf(whole->second);
  return absl::OkStatus();
}

std::vector<LayoutPtr> ModelKeeper::Layouts() const {
  std::vector<LayoutPtr> layouts = {layout_, sent_layout_};
  for (const auto& named : schema_.down) layouts.push_back(named.layout);
  for (const auto& channel : schema_.up) layouts.push_back(channel.layout);
  layouts.insert(layouts.end(), schema_.saved.begin(), schema_.saved.end());
  return layouts;
}

}  // namespace macaw::server
