#include "server/log/record.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace macaw::server::log {
namespace {

constexpr size_t kHead = 1024, kTail = 1024;  // bytes that are kept of a long message
constexpr size_t kLeast = 120;                // bytes that are kept of every message
constexpr size_t kLongTexts = 16 << 10;  // bytes of a part's messages before only kLeast are kept

bool InsideCharacter(absl::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

absl::string_view Head(absl::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && InsideCharacter(text, bytes)) --bytes;
  return text.substr(0, bytes);
}

absl::string_view Tail(absl::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  size_t from = text.size() - bytes;
  while (InsideCharacter(text, from)) ++from;
  return text.substr(from);
}

}  // namespace

std::pair<Round, Phase> PlaceOf(const Record& record) {
  return std::visit(
      [](const auto& r) -> std::pair<Round, Phase> {
        if constexpr (requires { r.phase; }) {
          return {r.round, r.phase};
        } else if constexpr (requires { r.round; }) {
          return {r.round, Phase()};
        } else {
          return {};
        }
      },
      record);
}

const char* NameOf(fleet::LeftOutReason reason) {
  switch (reason) {
    case fleet::LeftOutReason::kNotFinite:
      return "not_finite";
    case fleet::LeftOutReason::kOutOfBound:
      return "out_of_bound";
    case fleet::LeftOutReason::kNoData:
      return "no_data";
    case fleet::LeftOutReason::kState:
      return "state";
    case fleet::LeftOutReason::kFailed:
      return "failed";
    case fleet::LeftOutReason::kDeclined:
      return "declined";
    case fleet::LeftOutReason::kTooSlow:
      return "too_slow";
    case fleet::LeftOutReason::kGone:
      return "gone";
    case fleet::LeftOutReason::kNotNeeded:
      return "not_needed";
  }
  return "unknown";
}

const char* NameOf(End end) {
  switch (end) {
    case End::kFinished:
      return "finished";
    case End::kStopped:
      return "stopped";
    case End::kInterrupted:
      return "interrupted";
    case End::kFailed:
      return "failed";
  }
  return "unknown";
}

const char* NameOf(Operation operation) {
  switch (operation) {
    case Operation::kPause:
      return "pause";
    case Operation::kResume:
      return "resume";
    case Operation::kDrain:
      return "drain";
    case Operation::kAbortRound:
      return "abort_round";
    case Operation::kQuarantine:
      return "quarantine";
    case Operation::kAdmit:
      return "admit";
    case Operation::kGiveUp:
      return "give_up";
    case Operation::kSkipEvaluation:
      return "skip_evaluation";
  }
  return "unknown";
}

std::vector<GivenUp> GivenUpOf(const std::vector<fleet::LeftOut>& left_out) {
  std::vector<GivenUp> all;
  all.reserve(left_out.size());
  absl::flat_hash_map<absl::string_view, size_t> first;  // equal messages are kept once
  size_t spent = 0;
  for (const fleet::LeftOut& left : left_out) {
    GivenUp given_up{.attempt = left.attempt, .reason = left.reason};
    const absl::string_view message = left.message;
    const auto [seen, fresh] = first.try_emplace(message, all.size());
    if (!fresh) {
      given_up.message = all[seen->second].message;
      given_up.tail = all[seen->second].tail;
    } else if (spent > kLongTexts) {
      given_up.message = std::string(Head(message, kLeast));
    } else if (message.size() <= kHead + kTail) {
      given_up.message = left.message;
    } else {
      given_up.message = std::string(Head(message, kHead));
      given_up.tail = std::string(Tail(message, kTail));
    }
    if (fresh) spent += given_up.message.size() + given_up.tail.size();
    all.push_back(std::move(given_up));
  }
  return all;
}

std::string Shortened(absl::string_view message) { return std::string(Head(message, kLeast)); }

std::string TextOf(const GivenUp& given_up) {
  return given_up.tail.empty() ? given_up.message
                               : absl::StrCat(given_up.message, " … ", given_up.tail);
}

}  // namespace macaw::server::log
