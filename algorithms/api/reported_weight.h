#pragma once

namespace macaw::algorithms {

// The channel on which a client says its weight, for a rule that collects updates and weighs them.
// It has one number in float64, which is a buffer: attacks change parameters, and so a hostile
// client says the weight that an honest one would say.
inline constexpr char kWeightChannel[] = "weight";

}  // namespace macaw::algorithms
