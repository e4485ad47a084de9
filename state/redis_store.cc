#include "state/redis_store.h"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/logging.h"
#include "core/status.h"
#include "state/blob.h"

namespace macaw::state {
namespace {

constexpr uint64_t kChunk = uint64_t{1} << 20;
constexpr size_t kMostPipelined = 512;              // versions per pipeline
constexpr uint64_t kMostBytes = uint64_t{4} << 20;  // bytes per pipeline, plus one version

absl::string_view TextOf(const redisReply& reply) { return {reply.str, reply.len}; }

// Whether Redis does not let its settings be asked for: CONFIG has another name, or is forbidden.
bool KeepsItsSettings(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) &&
         (absl::StrContains(status.message(), "NOPERM") ||
          absl::StrContains(status.message(), "unknown command"));
}

// The value of `CONFIG GET key`; nothing if Redis does not tell.
absl::StatusOr<std::optional<std::string>> Setting(RedisPool& pool, absl::string_view key) {
  const RedisCommand ask[] = {{"CONFIG", "GET", key}};
  const absl::StatusOr<std::vector<RedisReplyPtr>> replies = pool.Call(ask);
  if (KeepsItsSettings(replies.status())) return std::nullopt;
  if (!replies.ok()) return replies.status();
  const redisReply& reply = *(*replies)[0];
  if (reply.type != REDIS_REPLY_ARRAY || reply.elements != 2) return std::nullopt;
  return std::string(TextOf(*reply.element[1]));
}

absl::Status CheckKeepsEverything(RedisPool& pool) {
  MACAW_ASSIGN_OR_RETURN(const auto policy, Setting(pool, "maxmemory-policy"));
  // A hosted service that does not tell keeps its data in its own way.
  if (!policy.has_value()) {
    Logger("state").Warning(absl::StrCat(
        "redis_does_not_tell store=", pool.Text(),
        " nobody can see whether it keeps client states: it needs maxmemory-policy noeviction, "
        "and appendonly yes"));
    return absl::OkStatus();
  }
  if (*policy != "noeviction") {
    return absl::FailedPreconditionError(
        absl::StrCat(pool.Text(), " has maxmemory-policy \"", *policy,
                     "\" and may throw client states away: set it to noeviction"));
  }
  MACAW_ASSIGN_OR_RETURN(const auto append_only, Setting(pool, "appendonly"));
  MACAW_ASSIGN_OR_RETURN(const auto snapshots, Setting(pool, "save"));
  if (append_only != "no" || snapshots != "") return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(pool.Text(),
                   " keeps nothing on disk (appendonly no, save \"\"), so client states would be "
                   "lost with it: set appendonly to yes, or keep them elsewhere (state.store)"));
}

}  // namespace

RedisStateStore::RedisStateStore(RedisPool::Options options, StateSchema schema, const Digest& run)
    : ClientStateStore(std::move(schema)),
      pool_(std::move(options)),
      prefix_(absl::StrCat("macaw:{", run.Hex().substr(0, 32), ":")),
      bytes_(BlobBytes(this->schema())) {}

absl::StatusOr<std::unique_ptr<RedisStateStore>> RedisStateStore::Open(RedisPool::Options options,
                                                                       StateSchema schema,
                                                                       const Digest& run) {
  std::unique_ptr<RedisStateStore> store(
      new RedisStateStore(std::move(options), std::move(schema), run));
  MACAW_RETURN_IF_ERROR(CheckKeepsEverything(store->pool_));
  return store;
}

std::vector<std::string> RedisStateStore::KeysOf(const Attempt& version) const {
  std::vector<std::string> keys;
  const std::string base = absl::StrCat(prefix_, version.client.value, "}:", version.fence.epoch,
                                        ".", version.fence.counter);
  for (uint64_t at = 0; at < bytes_; at += kChunk)
    keys.push_back(absl::StrCat(base, ":", at / kChunk));
  return keys;
}

size_t RedisStateStore::Together() const {
  return static_cast<size_t>(std::clamp<uint64_t>(kMostBytes / bytes_, 1, kMostPipelined));
}

absl::Status RedisStateStore::PutBlob(const Attempt& version, BlobPtr blob) {
  const NamedBlob one[] = {{version, std::move(blob)}};
  return PutBlobs(one);
}

absl::Status RedisStateStore::PutBlobs(std::span<const NamedBlob> blobs) {
  while (!blobs.empty()) {
    const std::span<const NamedBlob> now = blobs.first(std::min(Together(), blobs.size()));
    std::vector<std::vector<std::string>> keys;  // owns the words that the commands point to
    std::vector<RedisCommand> commands;
    for (const auto& [version, blob] : now) {
      if (blob->size() != bytes_) {
        return absl::InvalidArgumentError(
            absl::StrCat(Describe(version), ": ", blob->size(), " bytes in a store of ", bytes_));
      }
      const absl::string_view bytes(reinterpret_cast<const char*>(blob->bytes().data()),
                                    blob->size());
      keys.push_back(KeysOf(version));
      for (size_t i = keys.back().size(); i-- > 0;)
        commands.push_back({"SET", keys.back()[i], bytes.substr(i * kChunk, kChunk), "NX"});
    }
    const absl::StatusOr<std::vector<RedisReplyPtr>> replies = pool_.Call(commands);
    if (!replies.ok()) return Annotate(replies.status(), Describe(now.front().version));
    std::span<const RedisReplyPtr> rest = *replies;
    for (const auto& [version, blob] : now) {
      const bool is_new = std::ranges::all_of(
          rest.first(keys.front().size()),
          [](const RedisReplyPtr& reply) { return reply->type == REDIS_REPLY_STATUS; });
      rest = rest.subspan(keys.front().size());
      if (is_new) continue;
      // Something is stored there: by an earlier attempt whose answer was lost, or half of one.
      MACAW_ASSIGN_OR_RETURN(const BlobPtr stored, GetBlob(version));
      if (!std::ranges::equal(stored->bytes(), blob->bytes())) return Overwriting(version);
    }
    blobs = blobs.subspan(now.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<BlobPtr> RedisStateStore::Assemble(const Attempt& version,
                                                  std::span<const RedisReplyPtr> replies) const {
  auto blob = AlignedBuffer::Unset(bytes_);
  for (size_t i = 0; i < replies.size(); ++i) {
    const redisReply& reply = *replies[i];
    if (reply.type == REDIS_REPLY_NIL) return Annotate(Missing(version), pool_.Text());
    const std::span<std::byte> place =
        blob.bytes().subspan(i * kChunk, std::min(kChunk, bytes_ - i * kChunk));
    if (reply.type != REDIS_REPLY_STRING || reply.len != place.size()) {
      return absl::DataLossError(absl::StrCat(Describe(version), ": ", pool_.Text(),
                                              " holds something else under ", KeysOf(version)[i]));
    }
    std::memcpy(place.data(), reply.str, place.size());
  }
  return std::make_shared<const AlignedBuffer>(std::move(blob));
}

absl::StatusOr<BlobPtr> RedisStateStore::GetBlob(const Attempt& version) const {
  return std::move(GetBlobs(std::span(&version, 1)).front());
}

std::vector<absl::StatusOr<BlobPtr>> RedisStateStore::GetBlobs(
    std::span<const Attempt> versions) const {
  std::vector<absl::StatusOr<BlobPtr>> blobs;
  blobs.reserve(versions.size());
  while (!versions.empty()) {
    const std::span<const Attempt> now = versions.first(std::min(Together(), versions.size()));
    std::vector<std::vector<std::string>> keys;
    std::vector<RedisCommand> commands;
    for (const Attempt& version : now) {
      keys.push_back(KeysOf(version));
      for (const std::string& key : keys.back()) commands.push_back({"GET", key});
    }
    const absl::StatusOr<std::vector<RedisReplyPtr>> replies = pool_.Call(commands);
    for (size_t i = 0; i < now.size(); ++i) {
      const size_t pieces = keys[i].size();
      if (replies.ok()) {
        blobs.push_back(Assemble(now[i], std::span(*replies).subspan(i * pieces, pieces)));
      } else {
        blobs.emplace_back(Annotate(replies.status(), Describe(now[i])));
      }
    }
    versions = versions.subspan(now.size());
  }
  return blobs;
}

absl::StatusOr<bool> RedisStateStore::Contains(const Attempt& version) const {
  const std::vector<std::string> keys = KeysOf(version);
  const RedisCommand ask[] = {{"EXISTS", keys[0]}};
  MACAW_ASSIGN_OR_RETURN(const std::vector<RedisReplyPtr> replies, pool_.Call(ask));
  return replies[0]->type == REDIS_REPLY_INTEGER && replies[0]->integer == 1;
}

absl::Status RedisStateStore::Delete(std::span<const Attempt> versions) {
  while (!versions.empty()) {
    const size_t count = std::min(kMostPipelined, versions.size());
    std::vector<std::vector<std::string>> keys;
    for (const Attempt& version : versions.first(count)) keys.push_back(KeysOf(version));
    std::vector<RedisCommand> commands;
    for (const std::vector<std::string>& of_one : keys) {
      RedisCommand command = {"UNLINK"};
      command.insert(command.end(), of_one.begin(), of_one.end());
      commands.push_back(std::move(command));
    }
    MACAW_RETURN_IF_ERROR(pool_.Call(commands).status());
    versions = versions.subspan(count);
  }
  return absl::OkStatus();
}

absl::Status RedisStateStore::ForEach(const std::function<void(const Attempt&)>& visit) const {
  // Looks for any piece of a version: a writer that was killed leaves some of them, and the first
  // piece is written last. SCAN may return a key twice; the set removes duplicates and is small
  // compared with the versions.
  std::vector<Attempt> found;
  std::string cursor = "0";
  const std::string pattern = absl::StrCat(prefix_, "*}:*:*");
  do {
    const RedisCommand ask[] = {{"SCAN", cursor, "MATCH", pattern, "COUNT", "1000"}};
    MACAW_ASSIGN_OR_RETURN(const std::vector<RedisReplyPtr> replies, pool_.Call(ask));
    const redisReply& reply = *replies[0];
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements != 2)
      return absl::InternalError(absl::StrCat(pool_.Text(), " does not understand SCAN"));
    cursor = std::string(TextOf(*reply.element[0]));
    for (size_t i = 0; i < reply.element[1]->elements; ++i) {
      absl::string_view key = TextOf(*reply.element[1]->element[i]);
      if (!absl::ConsumePrefix(&key, prefix_)) continue;
      const std::vector<absl::string_view> parts = absl::StrSplit(key, absl::ByAnyChar("}:."));
      Attempt version;  // CLIENT } : EPOCH . COUNTER : PIECE
      if (parts.size() == 5 && absl::SimpleAtoi(parts[0], &version.client.value) &&
          absl::SimpleAtoi(parts[2], &version.fence.epoch) &&
          absl::SimpleAtoi(parts[3], &version.fence.counter)) {
        found.push_back(version);
      }
    }
  } while (cursor != "0");
  std::ranges::sort(found);
  const auto rest = std::unique(found.begin(), found.end());
  found.erase(rest, found.end());
  for (const Attempt& version : found) visit(version);
  return absl::OkStatus();
}

}  // namespace macaw::state
