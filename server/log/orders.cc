#include "server/log/orders.h"

#include <optional>
#include <variant>

#include "core/status.h"
#include "server/log/reader.h"

namespace macaw::server::log {
namespace {

void Follow(const Operated& order, Orders& orders) {
  switch (order.action) {
    case Operation::kPause:
      orders.paused = true;
      return;
    case Operation::kResume:
      orders.paused = false;
      return;
    case Operation::kQuarantine:
      orders.quarantine[order.name] = order;
      return;
    case Operation::kAdmit:
      orders.quarantine.erase(order.name);
      return;
    case Operation::kGiveUp:
      orders.given_up[order.name] = order;
      return;
    case Operation::kDrain:
    case Operation::kAbortRound:
    case Operation::kSkipEvaluation:
      return;  // of one server, or of one round
  }
}

}  // namespace

void Orders::Add(const Record& record) {
  if (const auto* order = std::get_if<Operated>(&record)) Follow(*order, *this);
  if (const auto* node = std::get_if<NodeJoined>(&record)) given_up.erase(node->name);
  if (std::holds_alternative<RunEnded>(record)) paused = false;
}

absl::StatusOr<Orders> ReadOrders(const std::string& path, uint64_t synced) {
  MACAW_ASSIGN_OR_RETURN(Reader reader, Reader::Open(path, synced));
  Orders orders;
  while (true) {
    MACAW_ASSIGN_OR_RETURN(const std::optional<Entry> entry, reader.Next());
    if (!entry.has_value()) return orders;
    orders.Add(entry->record);
  }
}

}  // namespace macaw::server::log
