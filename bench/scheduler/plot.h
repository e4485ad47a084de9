#pragma once

#include <string>
#include <vector>

namespace macaw::bench {

// A row of dots on a common axis that begins at 1, as SVG text. No library.
struct DotRow {
  std::string label;
  std::vector<double> values;  // parallel to the series
};
std::string DotPlot(const std::string& caption, const std::vector<std::string>& series,
                    const std::vector<DotRow>& rows, double largest);

}  // namespace macaw::bench
