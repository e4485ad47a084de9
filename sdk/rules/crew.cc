#include "sdk/rules/crew.h"

#include <sched.h>

#include <utility>

#include "core/status.h"
#include "training/api/local_json.h"

namespace macaw::sdk::rules {
namespace {

// Keeps a process on the processor of the calling thread, which waits while the process works.
// `processor`: where it is kept. A kernel that refuses costs time and nothing else.
void Bring(pid_t pid, int& processor) {
  const int here = ::sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE || here == processor) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(here, &only);
  if (::sched_setaffinity(pid, sizeof(only), &only) == 0) processor = here;
}

}  // namespace

Crew::Crew(std::shared_ptr<Interpreter> interpreter, Json opening, double seconds)
    : interpreter_(std::move(interpreter)), opening_(std::move(opening)), seconds_(seconds) {}

Crew::~Crew() = default;

absl::StatusOr<Json> Crew::Call(Process& process, const Json& question,
                                std::span<const int> files) {
  const absl::StatusOr<std::string> line =
      process.peer->Ask(peer::LineOf(question), {seconds_, "the rule's `seconds`"}, files);
  if (!line.ok()) return Annotate(line.status(), question["do"].get<std::string>());
  return peer::ObjectIn(*line, kPeerName);
}

absl::StatusOr<std::unique_ptr<Crew::Process>> Crew::Take(Json* opened) {
  if (opened == nullptr) {
    absl::MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Process> process = std::move(idle_.back());
      idle_.pop_back();
      return process;
    }
  }
  MACAW_ASSIGN_OR_RETURN(Interpreter::Forked forked, interpreter_->Fork());
  auto process = std::make_unique<Process>();
  process->pid = forked.pid;
  process->peer = std::move(forked.peer);
  MACAW_ASSIGN_OR_RETURN(Json answer, Call(*process, opening_, {}));
  if (answer.contains("error")) return absl::InternalError(answer["error"].get<std::string>());
  if (opened != nullptr) *opened = std::move(answer);
  return process;
}

absl::StatusOr<Json> Crew::Open() {
  Json opened;
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<Process> process, Take(&opened));
  absl::MutexLock lock(&mutex_);
  idle_.push_back(std::move(process));
  return opened;
}

absl::StatusOr<Json> Crew::Ask(Json question, std::span<const Arena* const> arenas,
                               const LocalConfig* local) {
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<Process> process, Take(nullptr));
  std::vector<int> files;
  for (const Arena* arena : arenas) {
    if (!process->arenas.insert(arena->id()).second) continue;
    question["new"].push_back(arena->description());
    files.push_back(arena->file());
  }
  if (!process->gone.empty()) question["gone"] = std::exchange(process->gone, {});
  if (local != nullptr) Bring(process->pid, process->processor);
  if (local != nullptr && process->local != *local) {
    question["local"] = training::ToJson(*local);
    process->local = *local;
  }
  MACAW_ASSIGN_OR_RETURN(Json answer, Call(*process, question, files));  // else the process is gone
  {
    absl::MutexLock lock(&mutex_);
    idle_.push_back(std::move(process));
  }
  if (answer.contains("error"))
    return absl::InvalidArgumentError(answer["error"].get<std::string>());
  return answer;
}

void Crew::Forget(const Arena& arena) {
  absl::MutexLock lock(&mutex_);
  for (const std::unique_ptr<Process>& process : idle_) {
    if (process->arenas.erase(arena.id()) > 0) process->gone.push_back(arena.id());
  }
}

}  // namespace macaw::sdk::rules
