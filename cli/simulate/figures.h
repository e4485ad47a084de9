#pragma once

#include <string>

// Numbers as people read them.
namespace macaw::cli {

// "12,345": a whole number.
std::string CountText(double number);
// "12 bytes", "31.4 kB", "15.7 MB": of a thousand each.
std::string SizeText(double bytes);
// "4.1 ms", "0.21 s", "12 s", "3.5 min", "2.1 h", "48 days", "41,100 days"
std::string DurationText(double seconds);

}  // namespace macaw::cli
