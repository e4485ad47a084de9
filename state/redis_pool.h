#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "state/redis_url.h"

struct redisContext;
struct redisReply;

namespace macaw::state {

// One command: its words, which may be binary. The bytes must live until the call returns.
using RedisCommand = std::vector<absl::string_view>;

struct FreeRedis {
  void operator()(redisContext* context) const;
  void operator()(redisReply* reply) const;
};
using RedisReplyPtr = std::unique_ptr<redisReply, FreeRedis>;

// Connections to one Redis, opened when needed and used by one call at a time. If a connection
// breaks, the call is repeated on a new one until `patience` has passed, so it must be safe to
// repeat every command. The program must ignore SIGPIPE, which a broken connection raises.
// Thread-safe.
class RedisPool {
 public:
  struct Options {
    RedisUrl url;
    Duration answer = FromSeconds(5);  // time limit for one pipeline
    // How long to retry while Redis is gone or does not answer.
    Duration patience = FromSeconds(60);
  };
  explicit RedisPool(Options options) : options_(std::move(options)) {}
  ~RedisPool();

  // Sends all commands at once and returns their replies in order. Errors, each with Redis' own
  // words: kUnavailable (no answer), kResourceExhausted (Redis is out of memory or disk),
  // kFailedPrecondition (any other error reply, or a password is required). While nobody answers,
  // one line is logged.
  absl::StatusOr<std::vector<RedisReplyPtr>> Call(std::span<const RedisCommand> commands)
      ABSL_LOCKS_EXCLUDED(mutex_);

  std::string Text() const { return options_.url.Text(); }

 private:
  using Context = std::unique_ptr<redisContext, FreeRedis>;
  absl::StatusOr<Context> Take() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Context> Connect() const;
  static absl::StatusOr<std::vector<RedisReplyPtr>> Try(redisContext* context,
                                                        std::span<const RedisCommand> commands);
  // Records whether Redis answered a call that began at `start`, and logs changes. A Redis that is
  // just starting is not logged.
  void Answering(const absl::Status& status, TimePoint start) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  absl::Mutex mutex_;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Context> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::state
