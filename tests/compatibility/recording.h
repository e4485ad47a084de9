#pragma once

#include <map>
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

// The folder of the tiny run of three rounds, with durable commits, as its server left it when it
// was killed: round 2 was open, and one of its four clients counted.
struct KilledRun {
  std::map<std::string, std::string> files;  // path in the folder -> bytes
  std::string digest;                        // of the model of the whole run
};

struct Recording {
  std::string version;  // of the release
  std::vector<Message> messages;
  std::vector<Call> session;
  KilledRun killed;
};

std::string ToJson(const Recording& recording);
Recording FromJson(const std::string& json);  // throws on an error

}  // namespace macaw::compatibility
