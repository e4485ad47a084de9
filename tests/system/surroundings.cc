#include "tests/system/surroundings.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/system/small_run.h"

namespace macaw::testing_support {
namespace {

using MetricRow = nlohmann::json;
using Table = std::vector<Surrounding>;

const Settings kPlain = {};

using testing_support::operator+;  // of names
Settings operator+(Settings left, const Settings& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}
Table operator+(Table left, const Table& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}
using Refusals = std::vector<Refusal>;
Refusals operator+(Refusals left, const Refusals& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

double In(const MetricRow& row, const char* column) {
  const auto found = row.find(column);
  return found != row.end() && found->is_number() ? found->get<double>() : 0;
}
auto Has(const char* column) {
  return [column](const MetricRow& row) { return row.contains(column); };
}
auto Above(const char* column, double least = 0) {
  return [=](const MetricRow& row) { return In(row, column) > least; };
}

// No other client may be drawn.
Settings EveryoneBut(uint32_t client) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < kTableClients; ++i) {
    if (i != client) names.push_back(absl::StrFormat("\"c%02d\"", i));
  }
  return {absl::StrCat("cohort.eligible=[", absl::StrJoin(names, ", "), "]")};
}

// ---- who trains

// Rules that must know how a cohort is drawn.
const Refusals& DrawnOtherwise() {
  static const auto& refusals =
      *new Refusals{{{"afl"}, "has no bias if all clients are drawn alike"},
                    {{"fltrust"}, "leaves it out of most rounds"}};
  return refusals;
}

Table OfCohorts() {
  const Settings devices = SmallDevices();
  const Refusal planned = {kMeanOfThoseWhoCame, "divides by the planned weight"};
  return {
      {.name = "DrawnCohorts", .settings = {}},
      {.name = "AllClients",
       .settings = {"cohort.size=12"},
       .shows = Above("clients", 11),
       .unseen = {"pooled"}},
      {.name = "ShareOfTheClients",
       .settings = {"cohort.fraction=0.5"},
       .refused = {{{"fltrust"}, "say the same thing in two ways"}},  // its own settings say it
       .like = Settings{"cohort.size=6"}},
      {.name = "PoissonCohorts",
       .settings = {"cohort.sampling=poisson"},
       .refused = DrawnOtherwise() + Refusals{planned}},
      {.name = "EmptyPoissonRounds",
       .settings = {"cohort.sampling=poisson", "cohort.size=1", "run.rounds=8"},
       .refused = DrawnOtherwise() + Refusals{planned,
                                              {{"krum"}, "need a cohort of 2f+3"},
                                              {{"rfa_in_buckets"}, "into one bucket"}},
       .shows = [](const MetricRow& row) { return In(row, "clients") == 0; },
       .unseen = {"pooled"}},
      {.name = "ClientsDrawnTwice",
       .settings = {"cohort.sampling=proportional", "cohort.weight=uniform", "cohort.size=9"},
       .refused = DrawnOtherwise() +
                  Refusals{{kKeepsState, "a client that keeps state can take only one turn"},
                           {kCollects, "each client's own update would count it once"}}},
      {.name = "EachClientBeforeAnyComesAgain",
       .settings = {"cohort.sampling=sweep"},
       .refused = DrawnOtherwise()},
      {.name = "AvailableClients",
       .settings = {"cohort.sampling=available"},
       .refused = DrawnOtherwise()},
      {.name = "ChosenByLoss",
       .settings = {"cohort.sampling=power-of-choice"},
       .refused = DrawnOtherwise()},
      {.name = "ChosenByBounds", .settings = {"cohort.sampling=ucb"}, .refused = DrawnOtherwise()},
      {.name = "Oort",
       .settings = devices + Settings{"cohort.sampling=oort"},
       .refused = DrawnOtherwise()},
      {.name = "OverSelection",
       .settings = devices + Settings{"cohort.over_selection=2"},
       .refused = {{{"pooled"}, "the population has 1 clients"},
                   {{"fltrust"}, "the population has 12 clients"}},
       .shows = [](const MetricRow& row) { return In(row, "clients") == 5; }},
      {.name = "PartialStragglers", .settings = {"cohort.straggler_fraction=0.5"}},
      {.name = "DroppedStragglers",
       .settings = {"cohort.straggler_fraction=0.5", "cohort.straggler_policy=drop"},
       .refused = {{{"fltrust"}, "leaves it out of some rounds"}},
       .shows = [](const MetricRow& row) { return In(row, "clients") < 5; }},
      {.name = "UniformWeights", .settings = {"cohort.weight=uniform"}},
      {.name = "ACountOfOneForEach",
       .settings = {"cohort.max_weight=1"},
       .refused = {{kSums, "has no effect with algorithm"}},
       .like = Settings{"cohort.weight=uniform"}},
      {.name = "LeastRows",
       .settings = {"cohort.min_rows=2"},
       .refused = {{kByNumber, "numbers the clients that train from 0"},
                   {{"fltrust"}, "but a round asks 12"}},
       .like = EveryoneBut(7)},
  };
}

// ---- what clients have

Table OfClients() {
  return {
      {.name = "AClientWithoutRowsBehindTheOthers",
       .settings = {"partition.path=empty-last.json"},
       .like = kPlain},
      {.name = "AClientWithoutRowsAmongTheOthers",
       .settings = {"partition.path=empty-within.json"},
       .refused = {{kByNumber, "numbers the clients that train from 0"}},
       .like = EveryoneBut(4),
       .unlike = {"pooled", "fltrust"}},  // one has all rows, the other asks all twelve
      {.name = "ClientsOfLessThanABatch",
       .settings = {"local.drop_last=true"},
       .refused = {{kNoOptions, "local.drop_last has no effect with algorithm"},
                   {kByNumber, "numbers the clients that train from 0"},
                   {{"fltrust"}, "but a round asks 12"}},
       .like = Settings{"local.drop_last=true", "cohort.min_rows=4"}},
      {.name = "AnUpdateThatIsNone",
       .settings = {"data.path=huge.csv", "cohort.size=12"},
       .ends = {{{"pooled"}, "all 1 clients had to be left out"}},
       .shows = Above("left_out"),
       .unseen = {"fedbn"}},  // batch norm makes any size of numbers one
      {.name = "NoiseOnFeatures", .settings = {"data.client_noise=0.3"}},
      {.name = "NoiseOnLabels",
       .settings = {"data.label_noise=0.3"},
       .refused = {{{"daef"}, "data.label_noise"}}},
      {.name = "GroupsThatNameClassesOtherwise",
       .settings = {"data.concept_shift=label-permutation", "data.concept_shift_groups=2"},
       .refused = {{{"daef"}, "data.concept_shift"}}},
  };
}

// ---- local work

Table OfLocalWork() {
  const Refusal counts = {{"scaffold", "scaffold_by_gradients", "fednova", "fednova_with_momentum",
                           "qfedavg", "mime", "mimelite", "gd"},
                          "the rule is made for SGD steps"};
  const Names own_steps = {"pfedme", "apfl", "perfedavg"};
  const Refusal steps = {own_steps, "the rule says each step of a client"};
  const Refusal not_read = {kSums, "has no effect with algorithm"};
  const Refusals clips = {not_read,
                          {{"mime", "mimelite"}, "clips one gradient of each pair"},
                          {own_steps + Names{"fedsam"}, "would clip a step's first gradient"}};
  return {
      {.name = "Momentum",
       .settings = {"local.momentum=0.5"},
       .refused = {not_read, {{"mime", "mimelite"}, "a second momentum inside the round"}, steps}},
      {.name = "Adam",
       .settings = {"local.optimizer=adam", "local.lr=0.01"},
       .refused = {not_read, counts, steps},
       .needs_libtorch = true},
      {.name = "ClippedGradients", .settings = {"local.clip_norm=0.5"}, .refused = clips},
      {.name = "ClippedCorrections",
       .settings = {"local.clip_norm=0.5", "local.clip=corrected"},
       .refused =
           clips + Refusals{{{"scaffold"}, "clips the gradient and its correction together"}},
       .needs_libtorch = true},
      {.name = "WeightDecay", .settings = {"local.weight_decay=0.01"}, .refused = {not_read}},
      {.name = "CountedSteps",
       .settings = {"local.steps=3"},
       .refused = {{kNoOptions, "local.steps has no effect with algorithm"}}},
      {.name = "StepsByARateThatIsSmall",
       .settings = {"local.steps=3", "local.qsr=0.01"},
       .refused = {{kNoOptions, "has no effect with algorithm"}},
       .like = Settings{"local.steps=3"}},
      {.name = "RatesThatFallToTheLastRound",
       .settings = {"local.lr_schedule.kind=cosine"},
       .refused = {not_read}},
      {.name = "RowsInStoredOrder",
       .settings = {"local.shuffle=false"},
       .refused = {{kNoOptions, "local.shuffle has no effect with algorithm"}}},
      {.name = "SmoothedLabels", .settings = {"local.label_smoothing=0.1"}, .refused = {not_read}},
      {.name = "PartsOfABatch",
       .settings = {"local.micro_batch=2"},
       .refused = {{kHooks, "which look at whole batches"}},
       .needs_libtorch = true},
      {.name = "Float64", .settings = {"run.dtype=float64"}, .needs_libtorch = true},
      {.name = "LibTorch", .settings = {"workers.backend=torch"}, .needs_libtorch = true},
      {.name = "AProgramOfTheOwner",
       .settings = {"workers.backend=process", R"(workers.command=["true"])",
                    "workers.give_rows=true"},
       .refused = {{kSums, "the algorithm does not train: it sums over rows"},
                   {{"heterofl"}, "the algorithm trains slices of the model"},
                   {kHooks, "hooks"},
                   {{"scaffold_by_gradients"}, "also asks for the gradient"},
                   {{"qfedavg", "afl", "term", "ifca"}, "also asks for the loss"}},
       .only_checked = true},
  };
}

// ---- evaluation, and what is kept: neither changes a model

Table OfEvaluation() {
  const Names no_common_model = {"local", "ifca"};
  return {
      {.name = "AnEvaluationOfTheLastRoundAlone",
       .settings = {"evaluation.every=0"},
       .like = kPlain,
       .shows =
           [](const MetricRow& row) {
             return row["round"] == 4 && row.contains("clients_test_loss");
           }},
      {.name = "NoEvaluationOfClients", .settings = {"evaluation.clients=false"}, .like = kPlain},
      {.name = "NoCentralEvaluation", .settings = {"evaluation.central=false"}, .like = kPlain},
      {.name = "AnEvaluationOfTrainingRows",
       .settings = {R"(evaluation.splits=["test", "train"])"},
       .refused = {{{"local"}, "evaluates the server's model on all training rows"}},
       .like = kPlain,
       .shows = Has("train_objective"),
       .unseen = {"ifca"}},  // several models
      {.name = "MoreMetrics",
       .settings = {R"(evaluation.metrics=["balanced_accuracy", "f1", "auc", "ece", "confusion"])"},
       .refused = {{{"daef"}, "evaluation.metrics"}},
       .like = kPlain,
       .shows = Has("clients_test_f1")},
      {.name = "GroupsOfClients",
       .settings = {R"(evaluation.groups=["few=c00", "others=*"])"},
       .like = kPlain,
       .shows = Has("clients_test_group_few_loss")},
      {.name = "ASampleOfClients", .settings = {"evaluation.sample=3"}, .like = kPlain},
      {.name = "FineTuning",
       .settings = {"evaluation.fine_tune.steps=3", "evaluation.fine_tune.lr=0.01"},
       .like = kPlain,
       .shows = Has("clients_test_tuned_loss")},
      {.name = "ClientsWhoJoinLater",
       .settings = {"partition.path=empty-last.json", "evaluation.heldout=true"},
       .refused = {{{"pooled"}, "one client has those of all"},
                   {no_common_model, "no common model that a client who joins could start from"}},
       .like = kPlain,
       .shows = Has("heldout_test_loss")},
      {.name = "NormsOfUpdates",
       .settings = {"evaluation.updates=true"},
       .refused = {{kSums + kCollects + Names{"local"}, "takes no mean of its clients' updates"},
                   {{"ifca"}, "move several models"},
                   {{"heterofl"}, "it tells of means over all"}},
       .like = kPlain,
       .shows = Has("rule_update_norm")},
      {.name = "ModelsWithoutEachClient",
       .settings = {"evaluation.leave_one_out=1"},
       .refused = {{no_common_model, "has no common model that a client could be left out of"},
                   {kSeveralPhases, "has several phases"}},
       .like = kPlain},
      {.name = "AModelWithoutAClientsUpdates",
       .settings = {"evaluation.unlearn=[0]"},
       .refused = {{no_common_model, "has no common model that a client could be left out of"},
                   {kSeveralPhases, "has several phases"}},
       .like = kPlain},
      {.name = "ARunThatStopsEarly",
       .settings = {"run.stop.metric=clients", "run.stop.at_least=1"},
       .like = Settings{"run.rounds=1"}},
      {.name = "ARunWhoseBudgetIsSpent",
       .settings = {"run.budget.bytes_down=1"},
       .like = Settings{"run.rounds=1"}},
      {.name = "ARunThatGetsNoBetter",
       .settings = {"run.stop.patience=2", "run.rounds=6"},
       .refused = {{{"ifca"}, "has several models"}}},
      {.name = "RecordsOfClients", .settings = {"run.client_records=true"}, .like = kPlain},
      {.name = "DurableCommits", .settings = {"server.durability=commit"}, .like = kPlain},
      {.name = "SeldomCheckpoints", .settings = {"run.checkpoint_every=3"}},
      {.name = "StatesInMemory", .settings = {"state.store=memory"}, .like = kPlain},
      {.name = "StatesWithoutACache", .settings = {"state.cache_mb=0"}, .like = kPlain},
  };
}

// ---- what travels

// Codecs of what clients send.
Refusals Uncoded() {
  return {{{"local", "pooled"}, "whose server uses what clients send"},
          {{"ifca"}, "of updates of one model"},
          {kSums, "send no vector of the model's tensors"}};
}
const Refusal& MixedCoordinates() {
  static const auto& refusal = *new Refusal{{"heterofl"}, "this codec mixes coordinates"};
  return refusal;
}
const Refusal& FedBack() {
  static const auto& refusal =
      *new Refusal{{"heterofl"}, "what a codec left out in one turn would be sent in another one"};
  return refusal;
}

Table OfCodecs() {
  return {
      {.name = "ACodecThatLosesNothing",
       .settings = {R"(update.codec=["topk 1"])", "update.feedback=none"},
       .refused = Uncoded(),
       .like = kPlain,
       .unlike = {"scaffold", "scaffold_by_gradients"}},  // c_i + what was sent is rounded again
      {.name = "AResidualOfNothing",
       .settings = {R"(update.codec=["topk 1"])", "update.feedback=residual"},
       .refused = Refusals{FedBack()} + Uncoded() +
                  Refusals{{kFollowsSent, "a residual would send it twice"}},
       .like = kPlain,
       .states_differ = true},
      {.name = "FewBits",
       .settings = {R"(update.codec=["bits 6"])"},
       .refused = Uncoded(),
       .shows = Above("rule_update_error")},
      {.name = "LargeNumbersAlone",
       .settings = {R"(update.codec=["topk 0.3"])"},
       .refused = Uncoded(),
       .shows = Above("rule_update_error")},
      {.name = "Ef21",
       .settings = {R"(update.codec=["topk 0.3"])", "update.feedback=ef21"},
       .refused = Refusals{FedBack()} + Uncoded() +
                  Refusals{{kCollects + Names{"afl"}, "ef21's server knows their sum alone"},
                           {kFollowsSent, "mirrors what they send in a round"}}},
      {.name = "Rotations",
       .settings = {R"(update.codec=["rotate", "bits 4"])"},
       .refused = Refusals{MixedCoordinates()} + Uncoded()},
      {.name = "MajorityVotes",
       .settings = {R"(update.codec=["majority 0.01"])"},
       .refused = {{{"ifca"}, "share several"},
                   {{"local", "pooled"}, "whose server uses what clients send"},
                   {kFollowsSent, "mirrors what is counted of their updates"},
                   {kCollects + Names{"afl"}, "looks at each client's own update"},
                   {{"fednova", "fednova_with_momentum", "qfedavg", "mime", "mimelite", "fedexp",
                     "term", "heterofl", "daef"},
                    "puts several sums together"},
                   {kSums, "send no vector of the model's tensors"}}},
      {.name = "Factors",
       .settings = {R"(update.codec=["acpsgd 1"])"},
       .refused = {MixedCoordinates(),
                   {{"ifca"}, "send one for each of several"},
                   {{"local", "pooled"}, "whose server uses what clients send"},
                   {kCollects, "factors of a sum say nothing of one client"},
                   {kSeveralPhases, "has several phases a round"},
                   {kSums, "update.codec"}}},
      {.name = "FactorsInTwoPhases",
       .settings = {R"(update.codec=["powersgd 1"])"},
       .refused = {MixedCoordinates(),
                   {{"ifca"}, "send one for each of several"},
                   {{"local", "pooled"}, "whose server uses what clients send"},
                   {kCollects, "factors of a sum say nothing of one client"},
                   {kSeveralPhases, "has several phases a round"},
                   {kFollowsSent, "is known in the second phase only"},
                   {kSums, "update.codec"}}},
      {.name = "ACodedModel",
       .settings = {R"(broadcast.codec=["bits 8"])", "broadcast.of=model"},
       .refused = {{{"ifca"}, "the server of this rule sends several"},
                   {{"local", "pooled"}, "whose clients train from the server's model"},
                   {{"daef"}, "changes the layers at which clients sum"}},
       .shows = Above("rule_broadcast_error")},
      {.name = "ACodedChange",
       .settings = {R"(broadcast.codec=["topk 0.3", "bits 8"])", "broadcast.of=change",
                    "cohort.size=12"},
       .refused = {{{"ifca"}, "the server of this rule sends several"},
                   {{"local", "pooled"}, "whose clients train from the server's model"},
                   {{"daef"}, "changes the layers at which clients sum"}}},
      {.name = "FrozenTensors",
       .settings = {R"(model.frozen=["0.bias"])"},
       .refused = {{kSums, "model.frozen, trained or adapters leave tensors of the model out"},
                   {{"heterofl"}, "leave tensors out"},
                   {{"ifca"}, "has several models"}}},
      {.name = "Adapters",
       .settings = {R"(model.adapters=["lora 1 0.*"])"},
       .refused = {{kSums, "model.frozen, trained or adapters leave tensors of the model out"},
                   {{"heterofl"}, "leave tensors out"},
                   {{"ifca"}, "has several models"},
                   {{"fedrep", "fedper"},
                    "the head is the model's last layer, which this run freezes"},
                   {{"fedbn"}, "nothing would stay local"}}},
  };
}

// ---- privacy and hostile clients

Table OfPrivacy() {
  const Refusals refused = {
      {{"ifca"}, "is for rules with one model"},
      {{"local", "pooled"}, "whose server adds up what clients send"},
      {kSeveralPhases, "the rule has several phases a round"},
      {kCollects + Names{"afl"}, "is no sum of what clients send"},
      {kSums + Names{"fedexp", "qfedavg", "fednova", "fednova_with_momentum", "heterofl"},
       "is no update of the model"}};
  return {
      {.name = "Privacy",
       .settings = SmallPrivacy(),
       .refused = refused,
       .shows = Above("rule_epsilon")},
      {.name = "PrivacyWithACodec",
       .settings = SmallPrivacy() + Settings{R"(update.codec=["bits 8"])"},
       .refused = Refusals{{{"local", "pooled"}, "whose server uses what clients send"},
                           {{"ifca"}, "of updates of one model"},
                           {kSums, "send no vector of the model's tensors"}} +
                  refused,
       .shows = Above("rule_epsilon")},
      {.name = "PrivacyWithAClipThatMoves",
       .settings = SmallPrivacy() + Settings{"privacy.clip_quantile=0.5", "privacy.count_noise=1"},
       .refused = refused,
       .shows = Above("rule_epsilon")},
  };
}

Table OfAttacks() {
  const Refusals unharmed = {{{"pooled"}, "one client has all training rows"},
                             {{"local"}, "the clients share no model"}};
  const Refusals of_means = unharmed + Refusals{{{"ifca"}, "it is of clients that share one model"},
                                                {{"heterofl"}, "is made of means over all clients"},
                                                {{"term"}, "takes the largest value"}};
  const auto attack = [](const std::string& kind, const std::string& fraction) {
    return Settings{"attack.kind=" + kind, "attack.fraction=" + fraction};
  };
  Table table;
  // One that has no clients changes nothing.
  for (const char* kind : {"sign-flip", "alie", "min-max"}) {
    const bool knows = kind != std::string("sign-flip");
    table.push_back({.name = absl::StrCat("NobodyWho_", kind),
                     .settings = attack(kind, "0.05"),
                     .refused = knows ? of_means : unharmed,
                     .like = kPlain});
  }
  for (const char* kind : {"label-flip", "sign-flip", "scaling", "free-rider", "inner-product",
                           "alie", "min-max", "min-sum", "mimic"}) {
    const bool knows =
        std::set<std::string>{"inner-product", "alie", "min-max", "min-sum", "mimic"}.contains(
            kind);
    Refusals refused = knows ? of_means : unharmed;
    if (kind == std::string("label-flip"))
      refused.push_back({{"daef"}, "labels are flipped among classes"});
    if (kind == std::string("free-rider"))
      refused.push_back({{"heterofl"}, "a free-rider trains no part"});
    table.push_back({.name = absl::StrCat("Hostile_", kind),
                     .settings = attack(kind, "0.3") + Settings{"cohort.size=12"},
                     .refused = std::move(refused),
                     .shows = Above("rule_attackers")});
  }
  return table;
}

// ---- time

Table OfTime() {
  const Settings devices = SmallDevices();
  const Refusals stale = {
      {kKeepsState, "what the rule's clients keep goes with the server's vectors of one round"},
      {kEveryRule - kKeepsState - kArrivals, "the rule is not made for updates of older models"}};
  const Refusals places = Refusals{{{"pooled"}, "can be drawn: lower round.concurrency"}} + stale;
  const Refusals fewer = Refusals{{{"fltrust"}, "fewer than cohort.size"}} + places;
  return {
      {.name = "DevicesThatAllWaitFor", .settings = devices, .like = kPlain},
      {.name = "ADeadlineThatAllKeep",
       .settings = devices + Settings{"round.deadline=1e6", "round.quorum=0.5"},
       .like = kPlain},
      {.name = "Deadline",
       .settings = devices + Settings{"cohort.size=12", "round.deadline=0.3", "round.quorum=0.1"},
       .shows = [](const MetricRow& row) { return In(row, "late") > 0 && In(row, "clients") > 0; },
       .unseen = {"pooled"}},
      {.name = "RoundsBelowTheQuorum",
       .settings =
           devices + Settings{"cohort.size=12", "devices.round_spread=0.5", "round.deadline=0.6",
                              "round.quorum=0.9", "round.below_quorum=drop", "run.rounds=6"},
       .shows = [](const MetricRow& row) { return In(row, "clients") == 0; },
       .unseen = kNoOptions},  // one pass over the rows, which nearly all end in time
      {.name = "Buffered",
       .settings = devices + Settings{"round.mode=buffered", "round.concurrency=8"},
       .refused = fewer,
       .shows = Above("staleness")},
      {.name = "BufferedInRounds",
       .settings =
           devices + Settings{"round.mode=buffered", "round.concurrency=5", "round.refill=5"},
       .refused = fewer,
       .like = kPlain},
      {.name = "Mixed",
       .settings = devices + Settings{"round.mode=mixed", "cohort.size=1", "round.concurrency=5",
                                      "run.rounds=8"},
       .refused = places,
       .shows = Above("staleness")},
      {.name = "MixedOneByOne",
       .settings = devices + Settings{"round.mode=mixed", "cohort.size=1", "round.mixing=1"},
       .refused = stale,
       .like = Settings{"cohort.size=1"}},
      {.name = "Overlapped",
       .settings = devices + Settings{"round.mode=overlapped"},
       .refused = stale,
       .shows = Above("staleness")},
  };
}

}  // namespace

const std::vector<Surrounding>& Surroundings() {
  static const auto& table = *new Table(OfCohorts() + OfClients() + OfLocalWork() + OfEvaluation() +
                                        OfCodecs() + OfPrivacy() + OfAttacks() + OfTime());
  return table;
}

}  // namespace macaw::testing_support
