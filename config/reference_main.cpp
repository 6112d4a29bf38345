// Prints the configuration's reference; config/README.md says when to run it.
#include <iostream>

#include "config/reference.h"

int main() {
  std::cout << batchmill::reference_config();
  return std::cout.flush() ? 0 : 1;
}
