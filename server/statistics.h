#pragma once

#include <span>
#include <vector>

namespace macaw::server {

// The values of a metric, one a client.
class ClientValues {
 public:
  // At least one value. `higher_is_better`: which tenth is the worst.
  ClientValues(std::vector<double> values, bool higher_is_better);

  double mean() const { return mean_; }
  double deviation() const { return deviation_; }  // of the clients, over n
  double Gini() const;
  double WorstTenth() const;  // the mean of ⌊n/10⌋ clients, at least one
  // Interpolates linearly between order statistics (NumPy's default).
  double Quantile(double q) const;

 private:
  std::vector<double> sorted_;  // NaN is the largest
  double mean_ = 0, deviation_ = 0;
  bool higher_is_better_;
};

// A statistic over clients. Its column is that of the metric with _ and the name behind it.
struct ClientStatistic {
  const char* name;
  const char* help;
  double (*of)(const ClientValues& values);
};
inline constexpr ClientStatistic kClientStatistics[] = {
    {"mean", "the mean", [](const ClientValues& v) { return v.mean(); }},
    {"std", "the standard deviation, over n", [](const ClientValues& v) { return v.deviation(); }},
    {"gini", "the Gini coefficient: 0 where all are equal",
     [](const ClientValues& v) { return v.Gini(); }},
    {"worst10", "the mean of the worst tenth (⌊n/10⌋ clients, at least one)",
     [](const ClientValues& v) { return v.WorstTenth(); }},
    {"p10", "the 10 % quantile", [](const ClientValues& v) { return v.Quantile(0.1); }},
    {"p50", "the median", [](const ClientValues& v) { return v.Quantile(0.5); }},
    {"p90", "the 90 % quantile", [](const ClientValues& v) { return v.Quantile(0.9); }},
};

}  // namespace macaw::server
