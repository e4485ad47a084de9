#include "server/config.h"

#include "scheduler/plan.h"

namespace macaw::server {

using settings::Above;
using settings::AtLeast;
using settings::Between;
using settings::Role;
using settings::Section;

namespace {

Section<StopRule> StopSection() {
  Section<StopRule> f;
  f.Add("metric", &StopRule::metric,
        "column of metrics.jsonl that may end the run early; default: an accuracy, else a loss, of "
        "validation rows where there are some, else of test rows; rule_epsilon with at_least is a "
        "budget that no round exceeds")
      .Needs([](const StopRule& rule) { return rule.at_least.has_value() || rule.patience > 0; },
             "run.stop.at_least or run.stop.patience");
  f.Add("at_least", &StopRule::at_least,
        "value of that column at which the run ends; looked at where a round is evaluated");
  f.Add("patience", &StopRule::patience,
        "evaluations without a better value after which the run ends; the best model is kept in "
        "model.best.safetensors",
        AtLeast(1))
      .Hidden([](const StopRule& rule) { return rule.patience == 0; });
  for (settings::Field<StopRule>& field : f.fields()) field.role = Role::kLength;
  return f;
}

Section<RunBudget> BudgetSection() {
  Section<RunBudget> f;
  f.Add(
      "virtual_seconds", &RunBudget::virtual_seconds,
      "with [devices]: seconds of virtual time, of all rounds, after which the run ends; like the "
      "other budgets looked at where a round is evaluated",
      Above(0));
  f.Add("bytes_up", &RunBudget::bytes_up,
        "bytes of updates, as in the column bytes_up of all rounds, after which the run ends",
        Above(0));
  f.Add("bytes_down", &RunBudget::bytes_down,
        "bytes that clients fetch, as in the column bytes_down of all rounds, after which the run "
        "ends",
        Above(0));
  for (settings::Field<RunBudget>& field : f.fields()) field.role = Role::kLength;
  return f;
}

Section<RoundRules> RoundSection() {
  using R = RoundRules;
  Section<R> f;
  f.Add("deadline", &R::deadline,
        "seconds after which a round (each phase of it) closes without the clients that are "
        "missing; 0: it waits for all",
        AtLeast(0));
  f.Add("quorum", &R::quorum, "share of the round's clients that must be counted", Between(0, 1))
      .Needs(
          [](const R& round) {
            return round.deadline > 0 || round.below_quorum == R::BelowQuorum::kDrop;
          },
          "round.deadline above 0 or round.below_quorum = \"drop\"");
  f.Add("enough", &R::enough,
        "number of counted clients that closes a round, cohort.size at most; 0: all of its clients",
        AtLeast(0));
  f.AddChoice("below_quorum", &R::below_quorum,
              {{"extend", R::BelowQuorum::kExtend}, {"drop", R::BelowQuorum::kDrop}},
              "what becomes of a round below its quorum. extend: it waits on; drop: nothing of it "
              "counts");
  f.Add("present_within", &R::present_within,
        "seconds within which a node must have been heard for its clients to be drawn; 0: any time",
        AtLeast(0));
  for (settings::Field<R>& field : f.fields()) field.role = Role::kCompute;
  return f;
}

}  // namespace

std::span<const RunBudget::Limit> RunBudget::Limits() {
  static constexpr Limit kLimits[] = {{"virtual_seconds", &RunBudget::virtual_seconds},
                                      {"bytes_up", &RunBudget::bytes_up},
                                      {"bytes_down", &RunBudget::bytes_down}};
  return kLimits;
}

Section<ServerConfig> ServerSection() {
  using C = ServerConfig;
  Section<C> f;
  f.AddPath("run.out", &C::out, "the run's folder; default: runs/<name> (-2, -3, … when taken)");
  f.Add("run.checkpoint_every", &C::checkpoint_every, "rounds between checkpoints", AtLeast(1))
      .As(Role::kCompute);
  f.Add("run.client_records", &C::client_records,
        "whether clients.jsonl is written, with a row per client and round")
      .As(Role::kCompute);
  f.AddSection("run.stop", &C::stop, StopSection());
  f.AddSection("run.budget", &C::budget, BudgetSection());
  std::vector<std::string> policies;
  for (const auto& [name, what] : scheduler::SchedulingPolicies()) policies.push_back(name);
  f.AddChoice("scheduler.policy", &C::scheduling_policy, policies,
              "which client trains where; moves time and never a result")
      .As(Role::kCompute);
  f.Add("server.listen", &C::listen, "host:port or unix:PATH; default: a private Unix socket")
      .As(Role::kCompute);
  f.AddPath("server.authority", &C::authority,
            "folder that `macaw pki init` made: connections are encrypted, and only nodes with a "
            "certificate are answered. Needed for addresses beyond this machine")
      .As(Role::kCompute);
  f.Add("server.admin", &C::admin,
        "where `macaw admin` reaches the server: unix:PATH or host:port (beyond loopback only with "
        "an authority: over TLS, for operators' certificates); default: admin.sock in "
        "the run's folder; \"off\": nowhere")
      .As(Role::kCompute);
  f.Add("server.http", &C::http,
        "host:port of a status page and of Prometheus' /metrics (\"127.0.0.1:0\"); default: none")
      .As(Role::kCompute);
  f.AddPath("server.http_token", &C::http_token,
            "a file whose first line is the token that the status page asks for; needed where "
            "server.http is not loopback")
      .As(Role::kCompute)
      .Needs([](const C& config) { return !config.http.empty(); }, "server.http");
  f.AddChoice("server.durability", &C::durability, {"checkpoint", "commit"},
              "what a crash of the server leaves: the newest checkpoint, or also every commit "
              "accepted since; `macaw simulate` then starts it again")
      .As(Role::kCompute);
  f.Add("server.lease_timeout", &C::lease_timeout,
        "seconds of silence after which work goes to others", Above(0))
      .As(Role::kCompute);
  f.Add("server.lease_factor", &C::lease_factor,
        "times the expected training time after which a lease ends, whatever its node reports; at "
        "least ten lease timeouts, at most server.lease_limit for each client",
        AtLeast(1))
      .As(Role::kCompute);
  f.Add("server.lease_limit", &C::lease_limit,
        "most seconds for one client, and the time allowed while none is known; an evaluation "
        "without a new result for so long ends without the missing ones",
        Above(0))
      .As(Role::kCompute);
  f.Add("server.files_from", &C::files_from,
        "bytes from which on vectors, sums and blobs lie in files of the run's folder, 4 MiB at "
        "least: where memory is short, the system writes them back; 0: all are in memory",
        AtLeast(0))
      .As(Role::kCompute);
  f.Add("server.downloads_at_once", &C::downloads_at_once,
        "nodes that fetch a model of 64 MiB or more at once; the others wait in the order in which "
        "they asked, two minutes at most for each before them, so that the first train and send "
        "while others fetch; 0: all at once",
        AtLeast(0))
      .As(Role::kCompute);
  f.Add("server.workers", &C::workers,
        "number of workers with which rounds begin; 0: workers.processes and workers.owners",
        AtLeast(0))
      .As(Role::kCompute);
  f.Add("server.mixed_profiles", &C::mixed_profiles,
        "whether workers may compute other last bits (instruction set, back end, versions); the "
        "summary then says \"reproducible\": false")
      .As(Role::kCompute);
  f.AddChoice(
       "server.instruction_set", &C::instruction_set,
       {"auto", "portable", "sse4", "avx2", "avx512", "neon"},
       "instructions with which every node trains: one whose workers.instruction_set is auto takes "
       "them, one that lacks them waits. auto: those of the first node that registers")
      .As(Role::kCompute);
  f.Add("server.max_deaths", &C::max_deaths,
        "times that a client's worker may die while it trains the client, in one round", AtLeast(1))
      .As(Role::kCompute);
  f.Add("server.max_lost_rounds", &C::max_lost_rounds,
        "rounds in a row without any client's contribution that end the run", AtLeast(1))
      .As(Role::kCompute);
  f.AddSection("round", &C::round, RoundSection());
  return f;
}

}  // namespace macaw::server
