#include "worker/lane.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/local_work.h"
#include "core/clock.h"
#include "core/logging.h"
#include "core/spelling.h"
#include "core/status.h"
#include "plan/local_steps.h"
#include "plan/real_arrivals.h"
#include "training/api/losses.h"
#include "training/api/metrics.h"
#include "training/api/most_work.h"
#include "training/api/straggler.h"
#include "worker/lasting_fault.h"

namespace macaw::worker {
namespace {

// Why a client is left out of the round, if the cause is the client itself.
std::optional<fleet::LeftOutReason> OwnReason(const absl::Status& status) {
  if (training::IsClientFault(status)) return fleet::LeftOutReason::kFailed;
  switch (status.code()) {
    case absl::StatusCode::kOutOfRange:
      return fleet::LeftOutReason::kOutOfBound;
    case absl::StatusCode::kInvalidArgument:
      return fleet::LeftOutReason::kNotFinite;
    case absl::StatusCode::kNotFound:
      return fleet::LeftOutReason::kNoData;
    default:
      return std::nullopt;
  }
}

// A failure that does not leave the client out, but ends the work of this node.
absl::Status OurFault(ClientId client, const absl::Status& status) {
  const std::string who = absl::StrCat("client ", client.value);
  const bool named = absl::StartsWith(status.message(), who);  // a trainer's errors name it
  const std::string message = absl::StrCat(named ? "" : absl::StrCat(who, ": "), status.message());
  if (IsLostDevice(status)) return LostDevice(message);
  return WouldComeAgain(status) ? LastingFault(message) : absl::InternalError(message);
}

// A record with the client's work alone: all steps, and the losses of the last stage under each
// name.
fleet::ClientRecord RecordOf(const algorithms::LocalWork& work, TaskKind task) {
  fleet::ClientRecord record;
  record.sums.assign(training::SchemaFor(task).sums.size(), 0.0);
  for (size_t i = 0; i < work.outcomes.size(); ++i) {
    const training::Stage& stage = work.plan.stages[i];
    if (stage.kind != training::StageKind::kTrain) continue;
    record.steps += work.outcomes[i].steps;
    const bool personal = stage.losses == training::Losses::kPersonal;
    (personal ? record.personal_sums : record.sums) = work.outcomes[i].sums;
  }
  return record;
}

}  // namespace

struct Lane::Turn {
  Turn(const LeasedClient& leased, const Received& received, algorithms::Workspace& scratch)
      : client(&leased),
        broadcast(received.vectors),
        workspace(&scratch),
        start(SteadyClock().Now()) {}

  const LeasedClient* client;
  std::span<const ConstVectorView> broadcast;
  algorithms::Workspace* workspace;
  uint32_t slot = 0;
  TimePoint start, read{}, loaded{};
  Duration waited{};  // for the round in which it counts
  state::ClientState state;
  training::ClientTask task;
  algorithms::ClientContext context;
  std::unique_ptr<algorithms::PlannedWork> work;
  std::vector<algorithms::UpValue> up;
  std::vector<ConstVectorView> next_state;  // empty: it does not change
  fleet::ClientRecord record;

  const fleet::Assignment& assignment() const { return client->assignment; }
  ClientId id() const { return client->assignment.client; }
};

absl::StatusOr<Lane> Lane::Make(const RunContext& context, const data::Dataset& dataset,
                                WorkCounter& work, uint32_t number) {
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<training::LocalTrainer> trainer,
                         MakeTrainerFor(context, dataset, &work, number));
  return Lane(context, dataset, work, std::move(trainer));
}

HeldModel Lane::Hold(ConstVectorView model, const TrainedPart& part) const {
  return part.vector.empty() ? HeldModel{.view = model} : context_->whole->Of(part);
}

Lane::Received Lane::Receive(const PhaseContext& phase) const {
  Received received{.model = Hold(phase.vectors.front(), phase.part), .vectors = phase.vectors};
  received.vectors.front() = received.model.view;
  return received;
}

absl::Status Lane::OpenSum(const PhaseContext& phase) {
  if (sum_->is_open()) return absl::OkStatus();
  return sum_->Open(algorithms::UpChannels(context_->schema, phase.phase), phase.order);
}

LaneResult Lane::TakeResult() {
  result_.sum = sum_->TakeHost();
  return std::exchange(result_, {});
}

algorithms::Workspace& Lane::CleanWorkspace(size_t index) {
  if (workspaces_.size() <= index) workspaces_.resize(index + 1);
  workspaces_[index].Reset();
  return workspaces_[index];
}

void Lane::LeaveOut(const fleet::Assignment& assignment, fleet::LeftOutReason reason,
                    const absl::Status& why) {
  // The message stands beside the client's number wherever it is shown.
  std::string message(
      absl::StripPrefix(why.message(), absl::StrCat("client ", assignment.client.value, ": ")));
  if (context_->redact_errors) {
    Logger("worker").Warning(
        absl::StrCat("client_left_out client=", assignment.client.value, " why=\"", message, "\""));
    message = "its owner keeps the words (node.redact_errors)";
  }
  result_.left_out.push_back({.attempt = {assignment.client, assignment.fence},
                              .reason = reason,
                              .message = std::move(message)});
}

absl::Status Lane::LeaveOutIfOwn(const fleet::Assignment& assignment, const absl::Status& why) {
  const std::optional<fleet::LeftOutReason> reason = OwnReason(why);
  if (!reason.has_value()) return why;
  LeaveOut(assignment, *reason, why);
  return absl::OkStatus();
}

absl::StatusOr<state::ClientState> Lane::ReadState(const Attempt& version) const {
  if (context_->states == nullptr) return state::ClientState{};
  absl::StatusOr<state::ClientState> state = context_->states->Read(version);
  if (!absl::IsNotFound(state.status())) return state;
  return absl::DataLossError(state.status().message());
}

absl::Status Lane::Train(const PhaseContext& phase, uint32_t first_slot,
                         std::span<const LeasedClient> clients) {
  const Received received = Receive(phase);
  std::deque<Turn> turns;  // the trainer's turns refer to their members
  std::vector<Turn*> begun;
  std::vector<training::Turn> work;
  for (const LeasedClient& client : clients) {
    Turn& turn = turns.emplace_back(client, received, CleanWorkspace(begun.size()));
    turn.slot = first_slot + static_cast<uint32_t>(&client - clients.data());
    MACAW_ASSIGN_OR_RETURN(const bool started, Start(phase, turn));
    if (!started) {
      turns.pop_back();
      continue;
    }
    begun.push_back(&turn);
    work.push_back({.plan = &turn.work->plan(), .task = &turn.task});
  }
  for (size_t at = 0; at < work.size();) {
    std::vector<training::TurnOutcome> outcomes = trainer_->RunMany(std::span(work).subspan(at));
    const std::span<Turn* const> done(&begun[at], outcomes.size());
    at += outcomes.size();
    MACAW_RETURN_IF_ERROR(MayAskApart() ? ConcludeWithApart(phase, done, std::move(outcomes))
                                        : Conclude(done, std::move(outcomes)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Lane::Start(const PhaseContext& phase, Turn& turn) {
  const fleet::Assignment& assignment = turn.assignment();
  absl::StatusOr<state::ClientState> state =
      ReadState({assignment.client, assignment.state_version});
  if (absl::IsDataLoss(state.status())) {
    LeaveOut(assignment, fleet::LeftOutReason::kState, state.status());
    return false;
  }
  MACAW_ASSIGN_OR_RETURN(turn.state, std::move(state));
  turn.read = SteadyClock().Now();
  const absl::Status begun = Begin(phase, turn);
  if (begun.ok()) return true;
  MACAW_RETURN_IF_ERROR(LeaveOutIfOwn(assignment, begun));
  return false;
}

absl::Status Lane::TrainAndArrive(const PhaseContext& phase, uint32_t slot,
                                  const LeasedClient& client, const AwaitArrival& await) {
  const Received received = Receive(phase);
  Turn turn(client, received, CleanWorkspace(0));
  turn.slot = slot;
  MACAW_ASSIGN_OR_RETURN(const bool started, Start(phase, turn));
  std::vector<training::TurnOutcome> outcomes;
  if (started) {
    const training::Turn work = {.plan = &turn.work->plan(), .task = &turn.task};
    outcomes = trainer_->RunMany({&work, 1});
    const absl::Status& status = outcomes.front().status();
    if (!status.ok() && !training::IsClientFault(status))
      return OurFault(turn.id(), OfTrainer(status));
  }
  const Arrival arrival = await({client.assignment.client, client.assignment.fence});
  if (arrival.round == nullptr) {
    result_.left_out.clear();
    return absl::OkStatus();
  }
  if (!started) return absl::OkStatus();
  const PhaseContext& round = *arrival.round;
  turn.waited = arrival.waited;
  turn.context.round = round.round;
  turn.context.staleness = round.staleness;
  if (const absl::Status status = OpenSum(round); !status.ok()) return OurFault(turn.id(), status);
  Turn* const one[] = {&turn};
  return Conclude(one, std::move(outcomes));
}

absl::Status Lane::Conclude(std::span<Turn* const> turns,
                            std::vector<training::TurnOutcome> outcomes) {
  const absl::Cleanup forget = [this] { sum_->Forget(); };  // the turns end, also by an error
  std::vector<Turn*> added;
  for (size_t i = 0; i < turns.size(); ++i) {
    const absl::Status status = Add(*turns[i], std::move(outcomes[i]));
    MACAW_RETURN_IF_ERROR(LeaveOutIfOwn(turns[i]->assignment(), status));
    if (status.ok()) added.push_back(turns[i]);
  }
  const absl::StatusOr<std::vector<absl::Status>> settled = sum_->Settle();
  if (!settled.ok()) return DeviceFault(settled.status());
  const std::vector<absl::Status>& verdicts = *settled;
  for (size_t i = 0; i < added.size(); ++i) {
    MACAW_RETURN_IF_ERROR(LeaveOutIfOwn(added[i]->assignment(), verdicts[i]));
    if (!verdicts[i].ok()) continue;
    MACAW_ASSIGN_OR_RETURN(fleet::ClientRecord record, Keep(*added[i]));
    result_.included.push_back(std::move(record));
  }
  return absl::OkStatus();
}

absl::Status Lane::ConcludeWithApart(const PhaseContext& phase, std::span<Turn* const> turns,
                                     std::vector<training::TurnOutcome> outcomes) {
  std::vector<Turn*> together;
  std::vector<training::TurnOutcome> theirs;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (SentApart(context_->run.evaluation, phase.round, turns[i]->id())) {
      MACAW_RETURN_IF_ERROR(ConcludeApart(phase, *turns[i], std::move(outcomes[i])));
    } else {
      together.push_back(turns[i]);
      theirs.push_back(std::move(outcomes[i]));
    }
  }
  return together.empty() ? absl::OkStatus() : Conclude(together, std::move(theirs));
}

absl::Status Lane::ConcludeApart(const PhaseContext& phase, Turn& turn,
                                 training::TurnOutcome outcome) {
  if (apart_ == nullptr) apart_ = std::make_unique<LaneSum>(trainer_->device_seat(), 1);
  if (const absl::Status status =
          apart_->Open(algorithms::UpChannels(context_->schema, phase.phase), phase.order,
                       LaneSum::Where::kOnHost);
      !status.ok())
    return OurFault(turn.id(), status);
  const size_t before = result_.included.size();
  Turn* const one[] = {&turn};
  std::vector<training::TurnOutcome> outcomes;
  outcomes.push_back(std::move(outcome));
  std::swap(sum_, apart_);
  const absl::Status status = Conclude(one, std::move(outcomes));
  std::swap(sum_, apart_);
  std::optional<aggregation::ExactSum> sum = apart_->TakeHost();
  MACAW_RETURN_IF_ERROR(status);
  if (result_.included.size() == before) return absl::OkStatus();  // it was left out
  result_.alone.push_back({*std::move(sum), std::move(result_.included.back())});
  result_.included.pop_back();
  return absl::OkStatus();
}

const fleet::LeftOut* Lane::LeftOutOf(const Attempt& attempt) const {
  const auto found = std::ranges::find(result_.left_out, attempt, &fleet::LeftOut::attempt);
  return found == result_.left_out.end() ? nullptr : &*found;
}

void Lane::Lengthen(const Attempt& attempt, double seconds) {
  const auto found =
      std::find_if(result_.included.rbegin(), result_.included.rend(),
                   [&](const fleet::ClientRecord& record) { return record.attempt == attempt; });
  if (found != result_.included.rend()) found->train_seconds += seconds;
  for (ClientAlone& one : result_.alone) {
    if (one.record.attempt == attempt) one.record.train_seconds += seconds;
  }
}

absl::Status Lane::Begin(const PhaseContext& phase, Turn& turn) {
  const fleet::Assignment& assignment = turn.assignment();
  const ClientId client = turn.id();
  // In a round that leaves each client out once, each has a sum of its own.
  if (!phase.arrives && !LeaveOneOutDue(context_->run.evaluation, phase.round)) {
    if (const absl::Status status = OpenSum(phase); !status.ok()) return OurFault(client, status);
  }
  // A device does not know in which round its client will count.
  const Round streams = DevicesArrive(context_->run) ? phase.work(context_->run) : phase.round;
  absl::StatusOr<training::ClientTask> task =
      LoadClient(*context_, *dataset_, SubjectOf(assignment), streams, phase.phase, work_);
  if (!task.ok()) return OurFault(client, task.status());
  turn.task = *std::move(task);
  if (turn.task.train.empty()) {
    return absl::NotFoundError(absl::StrCat("client ", client.value, ": it has no training rows"));
  }
  if (turn.task.train.size() < LeastRows(phase.local)) {
    return absl::NotFoundError(
        absl::StrCat("client ", client.value, ": it has ", turn.task.train.size(),
                     " training rows, fewer than a batch, and takes no step (local.drop_last)"));
  }
  turn.loaded = SteadyClock().Now();

  turn.context = {
      .round = phase.round,
      .phase = phase.phase,
      .client = client,
      .examples = static_cast<uint32_t>(turn.task.train.size()),
      .weight = assignment.weight,
      .local = training::WorkOf(context_->run.cohort, phase.local, phase.work(context_->run),
                                client, turn.task.train.size(), context_->spec.has_buffers()),
      .broadcast = turn.broadcast,
      .state = turn.state.items,
      .first_turn = assignment.state_version.counter == 0,
      .staleness = phase.staleness,
      .seed = context_->run.seed,
      .schema = &context_->schema,
      .broadcast_id = phase.id};
  auto work = algorithms::PlannedWork::Make(*context_->algorithm, turn.context, *turn.workspace);
  if (training::IsClientFault(work.status())) return work.status();
  if (!work.ok()) return OurFault(client, work.status());
  turn.work = *std::move(work);
  return absl::OkStatus();
}

absl::Status Lane::Add(Turn& turn, training::TurnOutcome outcomes) {
  const ClientId client = turn.id();
  if (training::IsClientFault(outcomes.status())) return outcomes.status();
  if (!outcomes.ok()) return OurFault(client, OfTrainer(outcomes.status()));
  const algorithms::LocalWork work = std::move(*turn.work).Done(*std::move(outcomes));
  if (!training::LossesCanCount(work.plan.stages, work.outcomes,
                                !context_->schema.models.empty())) {
    return absl::InvalidArgumentError(absl::StrCat("client ", client.value,
                                                   ": its loss is not finite, or beyond ",
                                                   training::kLargestSum, " in sum"));
  }
  if (context_->trace != nullptr) {
    const absl::Status traced =
        context_->trace->Write(work.plan, turn.task,
                               {.norms_need_two_rows = context_->spec.has_buffers(),
                                .hostile = context_->hostile.Contains(client)});
    if (!traced.ok()) return OurFault(client, traced);
  }
  turn.record = RecordOf(work, context_->run.task);
  MACAW_RETURN_IF_ERROR(CheckReported(turn));
  const absl::StatusOr<algorithms::ClientResult> result =
      context_->algorithm->Conclude(turn.context, work.outcomes, *turn.workspace);
  if (!result.ok()) return OurFault(client, OfTrainer(result.status()));
  auto up = algorithms::UpValues(context_->schema, turn.context.phase, *result, *turn.workspace);
  if (!up.ok()) return OurFault(client, OfTrainer(up.status()));
  auto next_state = algorithms::StateViews(context_->schema, turn.state.items, *result);
  if (!next_state.ok()) return OurFault(client, next_state.status());
  turn.up = *std::move(up);
  turn.next_state = *std::move(next_state);
  const fleet::Assignment& assignment = turn.assignment();
  const auto ends = turn.next_state.empty() ? algorithms::Ends::kMayGo : algorithms::Ends::kStay;
  const absl::StatusOr<uint64_t> bytes = sum_->Add(
      {client, assignment.weight, assignment.multiplicity}, turn.up, *turn.workspace, ends);
  if (!bytes.ok()) return OurFault(client, OfTrainer(bytes.status()));
  turn.record.bytes_up = *bytes;
  return absl::OkStatus();
}

// A server would refuse the whole part for it. A program of the owner's may report what it likes.
absl::Status Lane::CheckReported(const Turn& turn) const {
  const fleet::ClientRecord& record = turn.record;
  const uint64_t rows = turn.context.examples;
  const uint64_t planned = StepsOf(turn.context.local, rows, context_->spec.has_buffers());
  const bool tokens =
      context_->run.task == TaskKind::kNextToken && dataset_->info().train_tokens > 0;
  const training::MostWork most = training::MostWorkOf(
      context_->run,
      {.rows = rows, .tokens = tokens ? data::TokensOf(turn.task.train) : 0, .steps = planned});
  const auto refuse = [&](double reported, const char* what, double limit) {
    return training::ClientFault(absl::StrFormat(
        "client %d: its trainer reports %.0f %s, and %.0f at most can count, as it has %s and "
        "[local] plans %s",
        turn.id().value, reported, what, limit, Counted(rows, "row"), Counted(planned, "step")));
  };
  for (const std::vector<double>* sums : {&record.sums, &record.personal_sums}) {
    if (!sums->empty() && (*sums)[0] > most.rows)
      return refuse((*sums)[0], tokens ? "tokens" : "rows", most.rows);
  }
  const auto steps = static_cast<double>(record.steps);
  return steps > most.steps ? refuse(steps, "steps", most.steps) : absl::OkStatus();
}

absl::StatusOr<fleet::ClientRecord> Lane::Keep(Turn& turn) {
  const ClientId client = turn.id();
  const fleet::Assignment& assignment = turn.assignment();
  fleet::ClientRecord& record = turn.record;
  if (!turn.next_state.empty()) {
    const absl::Status kept = context_->states->Write({client, assignment.fence}, turn.next_state);
    if (!kept.ok()) return OurFault(client, kept);
    record.has_state = true;
  }
  record.attempt = {client, assignment.fence};
  record.multiplicity = assignment.multiplicity;
  record.weight = assignment.weight;
  record.examples = turn.context.examples;
  record.slot = turn.slot;
  record.began_after = ToSeconds(turn.start - turn.client->leased);
  if (assignment.state_version.counter != 0)
    record.state_seconds = ToSeconds(turn.read - turn.start);
  record.load_seconds = ToSeconds(turn.loaded - turn.read);
  record.train_seconds = ToSeconds(SteadyClock().Now() - turn.loaded - turn.waited);
  return std::move(record);
}

}  // namespace macaw::worker
