#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/mutex.h"
#include "state/redis_url.h"

struct redisContext;
struct redisReply;

namespace macaw::state {

// One command: its words, binary safe. The bytes must live until the call returns.
using RedisCommand = std::vector<absl::string_view>;

struct FreeRedis {
  void operator()(redisContext* context) const;
  void operator()(redisReply* reply) const;
};
using RedisReplyPtr = std::unique_ptr<redisReply, FreeRedis>;

// Connections to one Redis, opened when needed and used by one call at a time. A call that breaks
// is repeated on a new connection until `patience` has passed, so every command must bear being
// repeated. The program must ignore SIGPIPE, which a broken connection raises. Thread-safe.
class RedisPool {
 public:
  struct Options {
    RedisUrl url;
    Duration answer = FromSeconds(5);     // to one pipeline
    Duration patience = FromSeconds(60);  // with a Redis that is gone or hangs
  };
  explicit RedisPool(Options options) : options_(std::move(options)) {}
  ~RedisPool();

  // Sends all commands at once and returns their replies, in order. Errors: kUnavailable (nobody
  // answers), kResourceExhausted (Redis is out of memory or disk), kFailedPrecondition (another
  // error reply, and a password that is wanted), each with Redis' own words. While nobody answers,
  // the log says so once.
  absl::StatusOr<std::vector<RedisReplyPtr>> Call(std::span<const RedisCommand> commands)
      ABSL_LOCKS_EXCLUDED(mutex_);

  std::string Text() const { return options_.url.Text(); }

 private:
  using Context = std::unique_ptr<redisContext, FreeRedis>;
  absl::StatusOr<Context> Take() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Context> Connect() const;
  static absl::StatusOr<std::vector<RedisReplyPtr>> Try(redisContext* context,
                                                        std::span<const RedisCommand> commands);
  // Notes whether Redis answers a call that began at `start`; logs when that has changed. One that
  // is just starting is not worth a line.
  void Answering(const absl::Status& status, TimePoint start) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  Mutex mutex_;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Context> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::state
