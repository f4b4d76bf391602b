// See uec.h beside this file.
#ifndef UEC_MP_H
#define UEC_MP_H

#include <cstdint>
#include <string>

class UecMultipath {
public:
	enum PathFeedback { PATH_GOOD, PATH_ECN, PATH_NACK, PATH_TIMEOUT };
	enum EvDefaults { UNKNOWN_EV };
	explicit UecMultipath(bool) {}
	virtual ~UecMultipath() {}
	virtual void set_debug_tag(std::string) {}
	virtual void processEv(uint16_t path, PathFeedback feedback) = 0;
	virtual uint16_t nextEntropy(uint64_t seq, uint64_t cwnd_in_packets) = 0;
};

#endif
