/* FLV (Adobe Flash Video File Format 10.1, annex E): just enough for H.264 and AAC. */
#ifndef FLV_H
#define FLV_H

#include "satcast_driver.h"

enum { FLV_HEAD_BYTES = 13, FLV_TAG_HEAD_BYTES = 16, FLV_TAG_TAIL_BYTES = 4 };

/* The start of every file. */
void flv_head(uint8_t head[FLV_HEAD_BYTES]);

/*
 * What stands before and behind the payload of a packet. `base_ns` is time 0 of the file. Returns the bytes of `head` that are
 * used; 0 for a packet that FLV cannot hold, which is left out.
 */
size_t flv_tag(const SatcastPacket *packet, int64_t base_ns, uint8_t head[FLV_TAG_HEAD_BYTES],
               uint8_t tail[FLV_TAG_TAIL_BYTES]);

#endif
