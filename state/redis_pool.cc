#include "state/redis_pool.h"

#include <hiredis/hiredis.h>
#include <sys/time.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "core/logging.h"
#include "core/status.h"

namespace macaw::state {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(20);
constexpr Duration kLongestPause = std::chrono::seconds(1);
constexpr Duration kWorthALine = std::chrono::seconds(1);  // shorter silences are not logged

timeval ToTimeval(Duration duration) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
  return {.tv_sec = us / 1000000, .tv_usec = us % 1000000};
}

// An error reply of Redis. "LOADING" and "BUSY" are temporary.
absl::Status FromReply(const redisReply& reply) {
  const absl::string_view text(reply.str, reply.len);
  // MISCONF: Redis cannot write its append-only file, mostly because the disk is full.
  if (absl::StartsWith(text, "OOM") || absl::StartsWith(text, "MISCONF"))
    return absl::ResourceExhaustedError(text);
  if (absl::StartsWith(text, "NOAUTH") || absl::StartsWith(text, "WRONGPASS")) {
    return absl::FailedPreconditionError(absl::StrCat(
        text,
        " (the password is taken from MACAW_REDIS_PASSWORD, or from state.url when the run "
        "is started or resumed; no file keeps it)"));
  }
  if (absl::StartsWith(text, "LOADING") || absl::StartsWith(text, "BUSY") ||
      absl::StartsWith(text, "TRYAGAIN"))
    return absl::UnavailableError(text);
  return absl::FailedPreconditionError(text);
}

}  // namespace

void FreeRedis::operator()(redisContext* context) const { redisFree(context); }
void FreeRedis::operator()(redisReply* reply) const { freeReplyObject(reply); }

RedisPool::~RedisPool() = default;

absl::StatusOr<RedisPool::Context> RedisPool::Connect() const {
  const RedisUrl& url = options_.url;
  const timeval timeout = ToTimeval(options_.answer);
  Context context(url.socket.empty() ? redisConnectWithTimeout(url.host.c_str(), url.port, timeout)
                                     : redisConnectUnixWithTimeout(url.socket.c_str(), timeout));
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for a connection");
  if (context->err != 0) return absl::UnavailableError(context->errstr);
  redisSetTimeout(context.get(), timeout);
  std::vector<RedisCommand> hello;
  const std::string database = absl::StrCat(url.database);
  if (!url.password.empty()) {
    if (url.user.empty()) {
      hello.push_back({"AUTH", url.password});
    } else {
      hello.push_back({"AUTH", url.user, url.password});
    }
  }
  if (url.database != 0) hello.push_back({"SELECT", database});
  MACAW_RETURN_IF_ERROR(Try(context.get(), hello).status());
  return context;
}

absl::StatusOr<RedisPool::Context> RedisPool::Take() {
  {
    const absl::MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      Context context = std::move(idle_.back());
      idle_.pop_back();
      return context;
    }
  }
  return Connect();
}

absl::StatusOr<std::vector<RedisReplyPtr>> RedisPool::Try(redisContext* context,
                                                          std::span<const RedisCommand> commands) {
  for (const RedisCommand& command : commands) {
    std::vector<const char*> words;
    std::vector<size_t> sizes;
    for (const absl::string_view word : command) {
      words.push_back(word.data());
      sizes.push_back(word.size());
    }
    if (redisAppendCommandArgv(context, static_cast<int>(words.size()), words.data(),
                               sizes.data()) != REDIS_OK) {
      return absl::UnavailableError(context->errstr);
    }
  }
  std::vector<RedisReplyPtr> replies;
  absl::Status error;
  for (size_t i = 0; i < commands.size(); ++i) {
    void* reply = nullptr;
    if (redisGetReply(context, &reply) != REDIS_OK) return absl::UnavailableError(context->errstr);
    replies.emplace_back(static_cast<redisReply*>(reply));
    // Read the other replies all the same, so that the connection can be used again.
    if (replies.back()->type == REDIS_REPLY_ERROR && error.ok()) error = FromReply(*replies.back());
  }
  if (!error.ok()) return error;
  return replies;
}

void RedisPool::Answering(const absl::Status& status, TimePoint start) {
  const bool silent = absl::IsUnavailable(status);
  {
    const absl::MutexLock lock(&mutex_);
    if (silent == silent_ || (silent && SteadyClock().Now() - start < kWorthALine)) return;
    silent_ = silent;
  }
  const Logger log("state");
  if (silent) {
    log.Warning(absl::StrCat("redis_does_not_answer store=", Text(), " waiting_s=",
                             ToSeconds(options_.patience), " why=\"", status.message(), "\""));
  } else {
    log.Info(absl::StrCat("redis_answers_again store=", Text()));
  }
}

absl::StatusOr<std::vector<RedisReplyPtr>> RedisPool::Call(std::span<const RedisCommand> commands) {
  const TimePoint start = SteadyClock().Now(), give_up = start + options_.patience;
  Duration pause = kFirstPause;
  while (true) {
    absl::StatusOr<Context> context = Take();
    absl::Status status = context.status();
    if (context.ok()) {
      absl::StatusOr<std::vector<RedisReplyPtr>> replies = Try(context->get(), commands);
      if ((*context)->err == 0) {
        const absl::MutexLock lock(&mutex_);
        idle_.push_back(*std::move(context));
      } else {  // the other idle connections are most likely broken, too
        const absl::MutexLock lock(&mutex_);
        idle_.clear();
      }
      Answering(replies.status(), start);
      if (replies.ok()) return replies;
      status = replies.status();
    } else {
      Answering(status, start);
    }
    if (!absl::IsUnavailable(status)) return Annotate(status, Text());
    if (SteadyClock().Now() + pause >= give_up) {
      return absl::UnavailableError(absl::StrCat(Text(), " has not answered for ",
                                                 ToSeconds(options_.patience),
                                                 " s: ", status.message()));
    }
    std::this_thread::sleep_for(pause);  // on a thread of the state keeper, never on a slot's
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace macaw::state
