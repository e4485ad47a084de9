#pragma once

#include <string>
#include <vector>

// What the programs of one release wrote, kept as a file: fleet-VERSION.json.
namespace macaw::compatibility {

struct Message {
  std::string type;   // "macaw.v1.LeaseReply"
  std::string bytes;  // on the wire
  std::string text;   // the values, in Protobuf's text format on one line, by the names of fields
};

// A worker's side of the first round of the tiny run (tests/server/tiny_run.h), in order. What is
// not Hello or Register is in session kSession; a server gives another.
struct Call {
  std::string method;   // "Lease"
  std::string request;  // on the wire
};
inline constexpr unsigned kSession = 1;

struct Recording {
  std::string version;  // of the release
  std::vector<Message> messages;
  std::vector<Call> session;
};

std::string ToJson(const Recording& recording);
Recording FromJson(const std::string& json);  // throws on an error

}  // namespace macaw::compatibility
