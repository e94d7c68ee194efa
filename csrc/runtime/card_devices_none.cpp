// card_devices_none.cpp: libbloomery_cpu has no cards.
#include "device.h"

namespace bl {

std::vector<std::unique_ptr<Device>> card_devices(ThreadPool &) { return {}; }

const char *card_backends_json() { return ""; }

}  // namespace bl
