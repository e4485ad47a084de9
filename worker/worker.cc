#include "worker/worker.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "core/isa.h"
#include "core/logging.h"
#include "core/status.h"
#include "training/api/round_local.h"
#include "worker/availability.h"
#include "worker/base_files.h"
#include "worker/dry_run.h"
#include "worker/lasting_fault.h"
#include "worker/patient_calls.h"
#include "worker/registration.h"
#include "worker/run_context.h"
#include "worker/server_pace.h"
#include "worker/session.h"
#include "worker/state_keeper.h"

namespace macaw::worker {
namespace {

// The keeper of this run's client states. It is made when it is first needed and kept over
// sessions. Null if the algorithm keeps no states.
class RunStates {
 public:
  explicit RunStates(const Options& options) : options_(options) {}

  absl::StatusOr<StateKeeper*> Of(const RunContext& context, const Digest& run) {
    if (context.schema.state.empty()) return nullptr;
    if (keeper_ != nullptr && run == run_) return keeper_.get();
    state::StateSchema schema;
    for (const algorithms::NamedLayout& item : context.schema.state) schema.push_back(item.layout);
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<state::ClientStateStore> store,
                           state::OpenStore(options_.state, std::move(schema), run));
    keeper_ = std::make_unique<StateKeeper>(std::move(store), options_.slots);
    run_ = run;
    return keeper_.get();
  }

 private:
  const Options& options_;
  std::unique_ptr<StateKeeper> keeper_;
  Digest run_;
};

// The whole models of a run with frozen tensors, kept over sessions, so that its base is fetched
// once. Null if the model has none.
class RunModels {
 public:
  WholeModels* Of(const RunContext& context) {
    const std::shared_ptr<const algorithms::ModelParts>& parts = context.schema.parts;
    if (parts == nullptr) return nullptr;
    const auto same = [](const LayoutPtr& a, const LayoutPtr& b) {
      return a->digest() == b->digest();
    };
    if (models_ == nullptr || !same(models_->parts().whole, parts->whole) ||
        !same(models_->parts().trained.layout(), parts->trained.layout()))
      models_ = std::make_unique<WholeModels>(parts);
    return models_.get();
  }
  bool has_base() const { return models_ != nullptr && !models_->base().IsZero(); }

 private:
  std::unique_ptr<WholeModels> models_;
};

constexpr char kNotAccepted[] = "the owner of this node does not accept the run";

// Whether the node takes part in the run at any time.
absl::Status CheckRun(const Options& options, const RunPlan& run, const Demand& demand) {
  if (options.enrolled) {
    const absl::Status status = CheckForFleet(run);
    if (!status.ok()) return absl::PermissionDeniedError(status.message());
  }
  return CheckAccepted(options.accept, run, demand);
}

// When this node may work; null: always.
absl::StatusOr<std::unique_ptr<Availability>> AvailabilityOf(const Options& options,
                                                             const fleet::FleetLink* link) {
  if (!options.accept.conditional()) return nullptr;
  const std::string file = options.scratch_dir.empty()
                               ? ""
                               : absl::StrCat(options.scratch_dir, "/", options.name, ".traffic");
  Availability::World world;
  if (link != nullptr) world.traffic = [link] { return link->traffic(); };
  return Availability::Open(options.accept, file, std::move(world));
}

// A node's part in a run: sessions one after the other.
class Participation {
 public:
  Participation(const Options& options, const data::Dataset& dataset, fleet::FleetLink& link,
                const algorithms::Registry& registry, training::Backends& backends,
                std::stop_token stop)
      : options_(options),
        own_instruction_set_(options.backend.instruction_set),
        dataset_(dataset),
        link_(link),
        registry_(registry),
        backends_(backends),
        stop_(std::move(stop)),
        states_(options) {}

  // Reads the node's own files.
  absl::Status Open() {
    MACAW_ASSIGN_OR_RETURN(
        RunningMarker marker,
        RunningMarker::Open(options_.scratch_dir, options_.name, options_.slots));
    marker_.emplace(std::move(marker));
    MACAW_ASSIGN_OR_RETURN(request_, RequestFor(options_, dataset_, *marker_));
    patience_ = {.reconnect_for = options_.reconnect_for,
                 .longest_pause = options_.longest_pause,
                 .seed = request_.incarnation};
    MACAW_ASSIGN_OR_RETURN(availability_, AvailabilityOf(options_, &link_));
    if (options_.trace.empty()) return absl::OkStatus();
    MACAW_ASSIGN_OR_RETURN(Trace opened, Trace::Open(options_.trace));
    trace_.emplace(std::move(opened));
    return absl::OkStatus();
  }

  // Registers and works until the session ends. An error says what stands in the way. Calls
  // `begins` once the slots can train.
  absl::StatusOr<SessionEnd> Work(const std::function<void()>& begins) {
    const PatientCalls calls(patience_, stop_);
    MACAW_ASSIGN_OR_RETURN(const fleet::HelloReply hello, calls.Repeat([&] {
      return link_.Hello({.program = options_.program});
    }));
    MACAW_RETURN_IF_ERROR(LookAt(hello, calls));
    // The first answer of the owner's command may take a while, so it is not asked in a session.
    if (availability_ != nullptr) request_.declined_now = availability_->Now().declined;
    MACAW_ASSIGN_OR_RETURN(fleet::RegisterReply registration,
                           calls.Repeat([&] { return link_.Register(request_); }));
    if (const std::string note = BoundPace(registration); !note.empty())
      Logger("worker").Warning(note);
    request_.died_running.clear();
    patience_.reconnect_every = registration.reconnect_every;
    absl::StatusOr<Part> part = Prepare(registration);
    if (!part.ok()) {
      // The server must not wait for a node that cannot take part.
      (void)link_.Release({.session = registration.session, .leaving = true});
      return part.status();
    }
    Logger("worker").Info(absl::StrCat("registered epoch=", registration.epoch));
    const absl::StatusOr<SessionEnd> end = RunSession({.options = options_,
                                                       .dataset = dataset_,
                                                       .link = link_,
                                                       .context = part->context,
                                                       .marker = *marker_,
                                                       .availability = availability_.get(),
                                                       .commits = commits_,
                                                       .demand = part->demand,
                                                       .sum_form = hello.sum_form,
                                                       .seed = request_.incarnation,
                                                       .begins = begins},
                                                      registration, stop_);
    // An error that ends a session may not occur the next time, so it does not get the code of a
    // refusal, which callers take as final. Exceptions: a lasting fault would come again; a full
    // disk or store would still be full at the next attempt; a call without an answer keeps its
    // code, since the caller may know the reason; and a lost device needs another process.
    if (end.ok() || IsLastingFault(end.status()) || IsLostDevice(end.status()) ||
        absl::IsResourceExhausted(end.status()) || absl::IsUnavailable(end.status())) {
      return end;
    }
    return absl::AbortedError(end.status().message());
  }

  uint64_t seed() const { return request_.incarnation; }

 private:
  struct Part {
    RunContext context;
    Demand demand;
  };

  // What a session needs. An error says why this node cannot take part.
  absl::StatusOr<Part> Prepare(const fleet::RegisterReply& registration) {
    MACAW_RETURN_IF_ERROR(CheckPlugins(registration.run.plugins, options_.plugins));
    MACAW_ASSIGN_OR_RETURN(RunContext context,
                           MakeRunContext(options_, registration, registry_, backends_));
    // Again, since this is what will be trained: Hello may have told of another run, or of none.
    MACAW_ASSIGN_OR_RETURN(const Demand demand, DemandOf(context.spec, context.schema, dataset_));
    MACAW_RETURN_IF_ERROR(Annotate(CheckRun(options_, context.run, demand), kNotAccepted));
    if (tried_ != registration.run_id) MACAW_RETURN_IF_ERROR(TryOneBatch(context, dataset_));
    tried_ = registration.run_id;
    if (trace_.has_value()) context.trace = &*trace_;
    MACAW_ASSIGN_OR_RETURN(context.states, states_.Of(context, registration.run_id));
    context.whole = models_.Of(context);
    return Part{.context = std::move(context), .demand = demand};
  }

  // What the server runs: whether this node can and may take part.
  absl::Status LookAt(const fleet::HelloReply& hello, const PatientCalls& calls) {
    if (hello.run.has_value() &&
        (!hello.run->cohort.eligible.empty() || !hello.run->evaluation.groups.empty())) {
      // The server chooses clients by their names, or groups them.
      MACAW_ASSIGN_OR_RETURN(const fleet::ClientTable table, TableOf(dataset_, /*by_name=*/true));
      request_.table = fleet::Blob::Of(table.Encode());
    }
    ChooseInstructions(hello.instruction_set);
    auto profile = ProfileFor(hello.run, dataset_.info(), options_, registry_, backends_);
    if (absl::IsUnavailable(profile.status())) return LostDevice(profile.status().message());
    MACAW_ASSIGN_OR_RETURN(request_.profile, std::move(profile));
    if (!hello.run.has_value()) return absl::OkStatus();
    MACAW_ASSIGN_OR_RETURN(const Demand demand, CheckOwner(*hello.run, calls));
    if (availability_ == nullptr) return absl::OkStatus();
    // Which base the run has is known with the first lease.
    const BaseFiles bases(link_.shares_memory() ? "" : BaseFiles::FolderIn(options_.scratch_dir));
    const bool may_have_base = models_.has_base() || bases.HasAny();
    availability_->Expect({.up = demand.bytes_up,
                           .down = demand.bytes_down + (may_have_base ? 0 : demand.base_bytes)});
    return absl::OkStatus();
  }

  // Takes those of the run, if the node's file leaves the choice and the processor has them. A node
  // that lacks them is refused by the server, which says so.
  void ChooseInstructions(const std::string& of_run) {
    std::string& chosen = options_.backend.instruction_set;
    const std::string before = std::exchange(chosen, own_instruction_set_);
    if (own_instruction_set_ != "auto") return;
    const std::vector<Isa> supported = SupportedIsas();
    const bool has = std::ranges::any_of(supported, [&](Isa isa) { return Name(isa) == of_run; });
    if (!has || of_run == Name(supported.front())) return;
    chosen = of_run;
    if (before != of_run) {
      Logger("worker").Info(absl::StrCat("instruction_set ", of_run, ", the run's; this node has ",
                                         Name(supported.front())));
    }
  }

  // Tells the server of a run that this node's owner does not accept, once, and returns why.
  // Otherwise returns what the run asks.
  absl::StatusOr<Demand> CheckOwner(const RunPlan& run, const PatientCalls& calls) {
    MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, models::BuildSpec(run.model, run.dtype));
    MACAW_ASSIGN_OR_RETURN(const algorithms::Schema schema, SchemaOf(run, spec, registry_));
    MACAW_ASSIGN_OR_RETURN(const Demand demand, DemandOf(spec, schema, dataset_));
    const absl::Status accepted = CheckRun(options_, run, demand);
    if (accepted.ok()) return demand;
    if (std::exchange(declined_, std::string(accepted.message())) != accepted.message()) {
      fleet::RegisterRequest request = request_;
      request.declined = declined_;
      // The answer is an error in any case.
      (void)calls.Repeat([&] { return link_.Register(request); });
    }
    return Annotate(accepted, kNotAccepted);
  }

  Options options_;
  const std::string own_instruction_set_;  // as the node's file has it
  const data::Dataset& dataset_;
  fleet::FleetLink& link_;
  const algorithms::Registry& registry_;
  training::Backends& backends_;
  const std::stop_token stop_;
  std::optional<RunningMarker> marker_;
  fleet::RegisterRequest request_;
  Patience patience_;
  std::unique_ptr<Availability> availability_;
  std::optional<Trace> trace_;
  RunStates states_;
  RunModels models_;
  uint64_t commits_ = 0;
  std::optional<Digest> tried_;  // the run of which one batch was tried
  std::string declined_;         // what the server was told of the owner's refusal
};

}  // namespace

absl::StatusOr<Trial> Try(const Options& options, const data::Dataset& dataset, const RunPlan& run,
                          const algorithms::Registry& registry, training::Backends& backends) {
  MACAW_ASSIGN_OR_RETURN(const NumericProfile profile,
                         ProfileFor(run, dataset.info(), options, registry, backends));
  MACAW_ASSIGN_OR_RETURN(const RunContext context,
                         MakeRunContext(options, {.run = run}, registry, backends));
  Trial trial{.profile = absl::StrCat(profile.trainer, ", ", profile.instruction_set),
              .parameters = context.spec.layout->count(),
              .largest = LargestClient(dataset)};
  MACAW_ASSIGN_OR_RETURN(const Demand demand, DemandOf(context.spec, context.schema, dataset));
  trial.steps = MostSteps(run, demand);
  trial.bytes_up = demand.bytes_up;
  trial.bytes_down = demand.bytes_down;
  trial.base_bytes = demand.base_bytes;
  MACAW_RETURN_IF_ERROR(CheckRun(options, run, demand));
  MACAW_RETURN_IF_ERROR(TryOneBatch(context, dataset));
  return trial;
}

absl::StatusOr<std::string> WhyNotNow(const Options& options) {
  Options here = options;
  if (here.scratch_dir.empty()) {  // what was moved today is not known
    here.accept.max_bytes_up_a_day = 0;
    here.accept.max_bytes_down_a_day = 0;
  }
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<Availability> availability,
                         AvailabilityOf(here, /*link=*/nullptr));
  return availability == nullptr ? "" : availability->Now().declined;
}

absl::Status Run(const Options& options, const data::Dataset& dataset, fleet::FleetLink& link,
                 const algorithms::Registry& registry, training::Backends& backends,
                 std::stop_token stop) {
  const Logger log("worker");
  if (dataset.info().declared && options.backend.name != training::kProcessBackend) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the data is only declared: ", dataset.info().name,
        " says how many rows there are, and only "
        "a program of yours can read them; set workers.backend = \"process\" and workers.command"));
  }
  for (const std::string& note : dataset.info().notes) log.Warning(absl::StrCat("data ", note));
  Participation node(options, dataset, link, registry, backends, stop);
  MACAW_RETURN_IF_ERROR(node.Open());
  const PatientCalls pauses({}, stop);
  StandBy stand_by(
      options.stand_by, node.seed(), [&log](const std::string& line) { log.Warning(line); },
      [&pauses](Duration pause) { pauses.WaitFor(pause); });
  bool has_worked = false;
  const auto begins = [&] {
    stand_by.Works();
    has_worked = true;
  };
  while (!stop.stop_requested()) {
    const absl::StatusOr<SessionEnd> end = node.Work(begins);
    if (stop.stop_requested()) break;
    if (!end.ok() && !options.enrolled) return end.status();
    if (!end.ok()) {
      if (absl::IsUnauthenticated(end.status()) && options.renew != nullptr && options.renew().ok())
        log.Info("certificate_renewed");
      stand_by.Wait(end.status());
      // A process that never had its device gives the system time: without one a new process does
      // no better.
      if (IsLostDevice(end.status()) && options.start_again != nullptr && !stop.stop_requested() &&
          (has_worked || stand_by.waited() >= options.stand_by.longest)) {
        options.start_again(std::string(end.status().message()));
        return end.status();
      }
      continue;
    }
    stand_by.Passed();
    if (*end == SessionEnd::kRunOver) {
      log.Info("run_over the run is over");
      break;
    }
    log.Info("session_lost registering_again");
  }
  return absl::OkStatus();
}

}  // namespace macaw::worker
