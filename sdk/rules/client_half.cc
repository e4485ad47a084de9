#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "algorithms/around/channels.h"
#include "core/status.h"
#include "sdk/rules/halves.h"

namespace macaw::sdk::rules {
namespace {

using algorithms::ClientContext;
using algorithms::ClientResult;
using algorithms::Workspace;

constexpr size_t kMostStages = 32;   // of a turn
constexpr size_t kMostScratch = 64;  // vectors that a turn computes for its stages

// What a workspace's turn has in shared memory. One thread.
struct Turn {
  std::unique_ptr<Arena> arena;
  uint64_t broadcast_id = 0;  // of what lies in kDown; 0: nothing that is known
  size_t scratch = 0;         // of this turn
  size_t ends = 0;            // stages whose ends lie in kEnd
};

class ClientHalf final : public algorithms::ClientAlgorithm {
 public:
  ClientHalf(const Rule& rule, const algorithms::Setup& setup, Opened opened)
      : rule_(rule),
        layout_(setup.layout),
        schema_(std::move(opened.schema)),
        crew_(std::move(opened.crew)) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(Turn* const turn, TurnOf(workspace));
    Begin(context, *turn);
    return AskForStages("prepare", context, {}, *turn);
  }

  absl::StatusOr<training::LocalPlan> Continue(const ClientContext& context,
                                               std::span<const training::StageOutcome> outcomes,
                                               Workspace& workspace) const override {
    if (!rule_.proceeds) return training::LocalPlan();
    MACAW_ASSIGN_OR_RETURN(Turn* const turn, TurnOf(workspace));
    MACAW_RETURN_IF_ERROR(PutEnds(outcomes, *turn));
    return AskForStages("proceed", context, outcomes, *turn);
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(Turn* const turn, TurnOf(workspace));
    MACAW_RETURN_IF_ERROR(PutEnds(outcomes, *turn));
    MACAW_ASSIGN_OR_RETURN(const Json answer, Ask("conclude", context, outcomes, *turn));
    ClientResult result;
    MACAW_ASSIGN_OR_RETURN(const std::vector<algorithms::NamedView> up,
                           ViewsIn(answer.at("up"), context, *turn));
    for (const algorithms::NamedView& view : up) result.up.push_back({view.name, view.vector});
    MACAW_ASSIGN_OR_RETURN(result.state, ViewsIn(answer.at("state"), context, *turn));
    if (const auto metrics = answer.find("metrics"); metrics != answer.end()) {
      for (const auto& [name, value] : metrics->items()) {
        result.metrics.emplace_back(
            name, value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
      }
    }
    MACAW_RETURN_IF_ERROR(CheckFinite(outcomes, up, result.state));
    return result;
  }

  absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                  Workspace& workspace) const override {
    if (!rule_.personal) return training::Point(context.model());
    MACAW_ASSIGN_OR_RETURN(Turn* const turn, TurnOf(workspace));
    Begin(context, *turn);
    MACAW_ASSIGN_OR_RETURN(const Json answer, Ask("evaluation_point", context, {}, *turn));
    return PointAt(answer.at("point"), context, *turn);
  }

 private:
  absl::StatusOr<Turn*> TurnOf(const Workspace& workspace) const ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      const auto found = turns_.find(&workspace);
      if (found != turns_.end()) return found->second.get();
    }
    auto turn = std::make_unique<Turn>();
    MACAW_ASSIGN_OR_RETURN(turn->arena, Arena::Make(Places()));
    absl::MutexLock lock(&mutex_);
    return turns_.emplace(&workspace, std::move(turn)).first->second.get();
  }

  Arena::Places Places() const {
    const NamedPlace own{.layout = layout_, .of_model = true};
    std::vector<NamedPlace> down, state, up, ends(kMostStages, own), scratch(kMostScratch, own);
    const auto place = [&](const auto& item) {
      return NamedPlace{item.name, item.layout, schema_.OfModel(item.layout)};
    };
    for (const auto& item : schema_.travels.down) down.push_back(place(item));
    for (const auto& item : schema_.travels.state) state.push_back(place(item));
    for (const auto& item : schema_.travels.up) up.push_back(place(item));
    return {{Kind::kDown, down},  {Kind::kState, state}, {Kind::kUp, up},
            {Kind::kNext, state}, {Kind::kEnd, ends},    {Kind::kScratch, scratch}};
  }

  static void Begin(const ClientContext& context, Turn& turn) {
    turn.scratch = turn.ends = 0;
    if (context.broadcast_id == 0 || context.broadcast_id != turn.broadcast_id) {
      for (size_t i = 0; i < turn.arena->count(Kind::kDown); ++i) {
        if (Came(context, i)) turn.arena->Put(context.broadcast[i], Kind::kDown, i);
      }
      turn.broadcast_id = context.broadcast_id;
    }
    const size_t kept = std::min(turn.arena->count(Kind::kState), context.state.size());
    for (size_t i = 0; i < kept; ++i) turn.arena->Put(context.state[i], Kind::kState, i);
  }

  // Whether the rule's channel of this number was sent in this phase. What stands around the rule
  // ([update], [privacy]) adds its own channels and states behind the rule's, which sees none.
  static bool Came(const ClientContext& context, size_t number) {
    return number < context.broadcast.size() && !context.broadcast[number].empty();
  }

  static absl::Status PutEnds(std::span<const training::StageOutcome> outcomes, Turn& turn) {
    if (outcomes.size() > kMostStages) {
      return absl::InvalidArgumentError(
          absl::StrCat("a turn has more than ", kMostStages, " stages: ", outcomes.size()));
    }
    for (; turn.ends < outcomes.size(); ++turn.ends) {
      if (!outcomes[turn.ends].end.empty())
        turn.arena->Put(outcomes[turn.ends].end, Kind::kEnd, turn.ends);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Json> Ask(const char* what, const ClientContext& context,
                           std::span<const training::StageOutcome> outcomes,
                           const Turn& turn) const {
    Json sent = Json::array(), came = Json::array();
    for (size_t i = 0; i < turn.arena->count(Kind::kDown); ++i) {
      if (Came(context, i)) sent.push_back(i);
    }
    for (const training::StageOutcome& outcome : outcomes) {
      came.push_back({outcome.steps, outcome.rate_sum, outcome.a_norm1, outcome.examples,
                      outcome.sums});  // NaN becomes null
    }
    Json question = {
        {"do", what},
        {"arena", turn.arena->id()},
        {"sent", std::move(sent)},
        {"of", {context.round.value, context.phase.value, context.client.value, context.examples}},
        {"weight", context.weight},
        {"first", context.first_turn},
        {"used", turn.scratch},
        {"outcomes", std::move(came)}};
    const Arena* const arenas[] = {turn.arena.get()};
    return crew_->Ask(std::move(question), arenas, &context.local);
  }

  absl::StatusOr<training::LocalPlan> AskForStages(const char* what, const ClientContext& context,
                                                   std::span<const training::StageOutcome> outcomes,
                                                   Turn& turn) const {
    MACAW_ASSIGN_OR_RETURN(const Json answer, Ask(what, context, outcomes, turn));
    turn.scratch = answer.at("used").get<size_t>();
    training::LocalPlan plan;
    for (const Json& said : answer.at("stages")) {
      MACAW_ASSIGN_OR_RETURN(training::Stage stage, StageIn(said, context, turn));
      plan.stages.push_back(std::move(stage));
    }
    return plan;
  }

  absl::StatusOr<training::Stage> StageIn(const Json& said, const ClientContext& context,
                                          const Turn& turn) const {
    training::Stage stage;
    const std::string kind = said.at("kind").get<std::string>();
    stage.kind = kind == "Train"      ? training::StageKind::kTrain
                 : kind == "Gradient" ? training::StageKind::kGradient
                                      : training::StageKind::kLoss;
    MACAW_ASSIGN_OR_RETURN(stage.start, PointAt(said.at("start"), context, turn));
    MACAW_ASSIGN_OR_RETURN(stage.rows, RowsOf(said.at("rows")));
    stage.local = context.local;
    if (const auto local = said.find("local"); local != said.end())
      MACAW_RETURN_IF_ERROR(Change(*local, stage.local));
    if (stage.kind != training::StageKind::kTrain) return stage;
    stage.correction.mu = said.at("mu").get<double>();
    if (said.contains("anchor")) {
      MACAW_ASSIGN_OR_RETURN(stage.correction.anchor, PointAt(said["anchor"], context, turn));
    }
    if (const auto terms = said.find("v"); terms != said.end()) {
      for (const Json& term : *terms) {
        MACAW_ASSIGN_OR_RETURN(training::Point point, PointAt(term.at(0), context, turn));
        stage.correction.v.push_back({std::move(point), term.at(1).get<double>()});
      }
    }
    if (said.contains("trainable")) {
      stage.trainable =
          std::make_shared<const std::vector<bool>>(said["trainable"].get<std::vector<bool>>());
    }
    if (said.at("losses") == "personal") stage.losses = training::Losses::kPersonal;
    return stage;
  }

  static absl::StatusOr<data::Split> RowsOf(const Json& word) {
    if (word == "train") return data::Split::kTrain;
    if (word == "validation") return data::Split::kValidation;
    if (word == "test") return data::Split::kTest;
    return absl::InvalidArgumentError(absl::StrCat(
        "a stage's rows are ", word.dump(), " instead of \"train\", \"validation\" or \"test\""));
  }

  // Sets keys of [local], which a stage has of its own.
  static absl::Status Change(const Json& keys, LocalConfig& local) {
    static const settings::Section<LocalConfig> section = LocalSection();
    for (const auto& [key, value] : keys.items()) {
      for (const settings::Field<LocalConfig>& field : section.fields()) {
        if (field.key != key) continue;
        if (key == "qsr") {
          return absl::InvalidArgumentError(
              "a stage cannot change local.qsr: local.steps has the round's steps, and a stage may "
              "change that");
        }
        if (key == "steps" && value == 0) {  // the epochs decide
          local.steps = 0;
        } else if (!field.set(local, ValueOf(value))) {
          return absl::InvalidArgumentError(absl::StrCat("a stage's local.", key, " must be ",
                                                         field.expected, ", not ", value.dump()));
        }
      }
    }
    return absl::OkStatus();
  }

  static settings::Value ValueOf(const Json& json) {
    settings::Value value;
    if (json.is_boolean()) value.data = json.get<bool>();
    if (json.is_number_integer()) value.data = json.get<int64_t>();
    if (json.is_number_float()) value.data = json.get<double>();
    if (json.is_string()) value.data = json.get<std::string>();
    if (json.is_array()) {
      settings::Array items;
      for (const Json& item : json) items.push_back(ValueOf(item));
      value.data = std::move(items);
    }
    return value;
  }

  // What a reference of the rule's process names: ["down", 0], ["stage", 1].
  absl::StatusOr<training::Point> PointAt(const Json& reference, const ClientContext& context,
                                          const Turn& turn) const {
    if (reference.at(0) == "stage") return training::Point(training::StageEnd{reference.at(1)});
    MACAW_ASSIGN_OR_RETURN(const ConstVectorView view, ViewAt(reference, context, turn));
    return training::Point(view);
  }

  absl::StatusOr<ConstVectorView> ViewAt(const Json& reference, const ClientContext& context,
                                         const Turn& turn) const {
    const auto number = reference.at(1).get<size_t>();
    for (const Kind kind :
         {Kind::kDown, Kind::kState, Kind::kUp, Kind::kNext, Kind::kEnd, Kind::kScratch}) {
      if (reference.at(0) != NameOf(kind) || number >= turn.arena->count(kind)) continue;
      if (kind == Kind::kDown) return context.broadcast[number];
      if (kind == Kind::kState) return context.state[number];
      const VectorView view = turn.arena->At(kind, number);
      if (kind != Kind::kEnd) peer::ZeroGaps(view);
      return view;
    }
    return peer::NotUnderstood(reference.dump(), kPeerName, "no such vector");
  }

  absl::StatusOr<std::vector<algorithms::NamedView>> ViewsIn(const Json& references,
                                                             const ClientContext& context,
                                                             const Turn& turn) const {
    std::vector<algorithms::NamedView> views;
    for (const auto& [name, reference] : references.items()) {
      MACAW_ASSIGN_OR_RETURN(const ConstVectorView view, ViewAt(reference, context, turn));
      views.push_back({name, view});
    }
    return views;
  }

  // A client whose training has diverged is left out by the sum. What is not finite although all
  // that was trained is, is the rule's own mistake.
  static absl::Status CheckFinite(std::span<const training::StageOutcome> outcomes,
                                  const std::vector<algorithms::NamedView>& up,
                                  const std::vector<algorithms::NamedView>& state) {
    for (const auto* given : {&up, &state}) {
      for (const algorithms::NamedView& view : *given) {
        const std::string found = FirstNotFinite(view.vector);
        if (found.empty()) continue;
        for (const training::StageOutcome& outcome : outcomes) {
          if (!outcome.end.empty() && !FirstNotFinite(outcome.end).empty()) return absl::OkStatus();
        }
        return absl::InvalidArgumentError(
            absl::StrCat("conclude gives '", view.name, "', of which ", found,
                         ", although every result of its training is finite"));
      }
    }
    return absl::OkStatus();
  }

  const Rule rule_;
  const LayoutPtr layout_;
  const RuleSchema schema_;
  const std::unique_ptr<Crew> crew_;
  mutable absl::Mutex mutex_;
  mutable std::map<const Workspace*, std::unique_ptr<Turn>> turns_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<algorithms::ClientAlgorithm>> MakeClientHalf(
    const Rule& rule, const algorithms::Setup& setup) {
  MACAW_ASSIGN_OR_RETURN(Opened opened, Open(rule, setup));
  return std::make_unique<ClientHalf>(rule, setup, std::move(opened));
}

}  // namespace macaw::sdk::rules
