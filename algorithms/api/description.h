#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/algorithm.h"
#include "core/settings/section.h"
#include "plan/local_steps.h"

namespace macaw::algorithms {

struct ParameterSpec {
  std::string name;
  ParameterValue default_value;   // its type is the parameter's type
  std::string help;               // one line, with the unit and the paper's symbol
  std::optional<double> minimum;  // inclusive, for numbers
  std::optional<double> maximum;
  std::vector<std::string> choices;  // for strings
  // A check beyond the fields above, for texts with a syntax of their own.
  std::function<absl::Status(const ParameterValue&)> check = {};
  // What other parameters must be for this one to have an effect; empty: it always has.
  std::vector<settings::Need<AlgorithmConfig>> needs = {};
  bool open_minimum = false;  // the minimum itself is refused
};

// What a formula need not explain.
inline constexpr char kFormulaSymbols[] =
    "x: the model. y: a client's, which starts as x. y ← y − η·g: a step of local.optimizer, for "
    "all local work. g: the gradient of a batch, at y where no other point is named. f_i: the "
    "client's mean loss. η: local.lr. η_g: server_lr. mean: over the cohort, weighted by "
    "cohort.weight; plain where cohort.sampling is proportional, over the planned weight where it "
    "is poisson.";

// The hostile clients of a round that a rule is set up for.
struct Withstood {
  uint64_t clients = 0;
  std::string key = {};  // that says so: "algorithm.krum.f"; empty: none does
};

// A client that the rule takes for honest, whatever it sends.
struct Trusted {
  ClientId client;
  std::string key = {};  // that says so: "algorithm.fltrust.root"
};

// The clients that a round must count: with fewer it leaves the model as it is.
struct Needed {
  uint64_t clients = 1;
  std::string why = {};  // "2f+3 with algorithm.krum.f = 1"
};

// Everything the system knows about an algorithm. A built-in algorithm is one file that ends with a
// function returning this.
struct Description {
  std::string name;
  std::string summary;  // a line for `macaw algorithms`
  std::string paper;    // author, year, title
  // What clients and server compute, a formula a line, in the symbols of kFormulaSymbols.
  std::string formula = {};
  std::vector<ParameterSpec> parameters;
  std::string remarks = {};  // what to know before choosing it; shown by `macaw algorithms NAME`
  std::string plugin = {};   // that it is from; filled in when that is loaded. Empty: a built-in
  std::vector<std::string> ignores = {};  // keys of a run that change nothing: "local.epochs"

  // Some stage has hooks (training/api/hooks.h), which only LibTorch can run. Without this a run
  // does not ask for that back end before it begins.
  bool has_hooks = false;
  // Some stage trains a slice of the model (Stage::width): an update is zero elsewhere, and the
  // server's mean of each coordinate is over the clients that train it.
  bool has_slices = false;
  // The stages are sums over rows (training/api/row_statistics.h), and none trains.
  bool has_statistics = false;
  // EvaluationPoint returns each client's own model, so the test accuracy is that of the clients'
  // models.
  bool has_personal_models = false;
  // false: the clients' models are all there is, so the server's is not evaluated.
  bool has_common_model = true;
  // The server has several models, none of them the common one: Schema::models has the others.
  bool has_several_models = false;
  // What clients send moves the server's models.
  bool shares_models() const { return has_common_model || has_several_models; }
  // So that clients are evaluated at both.
  bool has_both_models() const { return has_personal_models && has_common_model; }
  // The run trains one client that has all clients' training rows (partition.train_together).
  bool pools_clients = false;
  // Sentences about this particular run for its opening lines; empty function: none.
  std::function<std::vector<std::string>(const Setup&)> notes = {};

  // [privacy] and [update] take a rule with a client state only if one of these two is true.
  // What a client keeps (Schema::state) does not mirror what it sends, as a personal model does
  // not: the rule is right whatever part of an update the server counts.
  bool has_independent_state = false;
  // What a client keeps mirrors what it sends, and ClientAlgorithm::Sent makes it mirror what is
  // counted. SCAFFOLD's c_i is such a state, because the server's c has to be the mean of
  // all c_i; its schema says that it is (NamedLayout::summed).
  bool state_follows_sent = false;
  // The tensors that stay with each client, of which it sends zeros; empty function: not said. With
  // [privacy] a model may have buffers if all of them are among these.
  std::function<ParameterGroup(const Setup&)> stays_with_clients = {};
  // The mean of updates of several ages still moves the model (round.mode): the server half needs
  // nothing of the round from whose model a client began.
  bool asynchronous = false;
  // A class in Python (macaw.rules), which can say the first of the two alone.
  bool in_python = false;
  // Which totals over the population its halves compute with, apart from what the sampling needs.
  // A fleet whose clients have other totals than its plan says is refused for such a rule, and
  // warned of for others. Empty function: both if the rule is of a plug-in, none if it is a
  // built-in.
  std::function<TotalsUsed(const Setup&)> totals = {};

  // What a client's turn passes through the model, beside or instead of the steps of [local]:
  // devices take as long in virtual time. Empty function: those steps (RowsPassed).
  std::function<RowsOfTurn(const Setup&)> passes = {};

  // How many hostile clients of a round it is set up for; empty function: it makes no such promise.
  std::function<Withstood(const Setup&)> withstands = {};

  // The client that must not be hostile, and must train; empty function: there is none.
  std::function<Trusted(const Setup&)> trusts = {};

  // It keeps a number for each client that trains, by the client's own number, so that no client
  // without rows may stand before one that trains.
  bool numbers_clients = false;

  // A step takes so many batches: a turn with fewer changes nothing.
  uint32_t batches_a_step = 1;

  // The fewest clients that a round must count for the rule to do anything; empty function: one.
  std::function<Needed(const Setup&)> needs = {};

  // Refuses runs that the rule is not made for, with the reason. Empty function: every run is
  // accepted.
  std::function<absl::Status(const Setup&)> check = {};
  std::function<absl::StatusOr<Schema>(const Setup&)> schema;
  std::function<absl::StatusOr<std::unique_ptr<ServerAlgorithm>>(const Setup&, FlatVector model)>
      server;
  std::function<absl::StatusOr<std::unique_ptr<ClientAlgorithm>>(const Setup&)> client;
};

// For Description::passes: `steps` gradients of each row of each step of [local], and `all` of each
// of the client's training rows. A pass forth alone is kForward.
RowsOfTurn Passes(double steps, double all = 0);

// What a turn of this run passes through the model, whose layout `setup` has. Keeps what it needs.
RowsOfTurn RowsOfTurnOf(const Description& rule, const Setup& setup);

// The most clients that a round of this run can count, and how many it counts on average.
uint64_t MostClients(const Setup& setup);
double MeanClients(const Setup& setup);

// For Description::server and client, if the half's constructor has the same parameters.
template <typename Half>
absl::StatusOr<std::unique_ptr<ServerAlgorithm>> MakeServer(const Setup& setup, FlatVector model) {
  return std::make_unique<Half>(setup, std::move(model));
}
template <typename Half>
absl::StatusOr<std::unique_ptr<ClientAlgorithm>> MakeClient(const Setup& setup) {
  return std::make_unique<Half>(setup);
}

}  // namespace macaw::algorithms
