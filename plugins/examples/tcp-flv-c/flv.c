#include "flv.h"

enum { TAG_AUDIO = 8, TAG_VIDEO = 9, TAG_FIXED_BYTES = 11 };
enum { VIDEO_KEY_AVC = 0x17, VIDEO_INTER_AVC = 0x27, AUDIO_AAC = 0xaf };
enum { AVC_PREFIX_BYTES = 5, AAC_PREFIX_BYTES = 2 };

/* Sizes are written in three bytes. */
static const size_t DATA_BYTES_MAX = 0xffffff;
static const int64_t NANOS_PER_MS = 1000000;

static void put24(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 16);
    at[1] = (uint8_t)(value >> 8);
    at[2] = (uint8_t)value;
}

void flv_head(uint8_t head[FLV_HEAD_BYTES])
{
    /* Version 1, with audio and video, a header of 9 bytes, no tag before the first. */
    static const uint8_t bytes[FLV_HEAD_BYTES] = {'F', 'L', 'V', 1, 5, 0, 0, 0, 9, 0, 0, 0, 0};
    memcpy(head, bytes, sizeof bytes);
}

size_t flv_tag(const SatcastPacket *packet, int64_t base_ns, uint8_t head[FLV_TAG_HEAD_BYTES],
               uint8_t tail[FLV_TAG_TAIL_BYTES])
{
    const int is_config = (packet->flags & SATCAST_PACKET_CONFIG) != 0;
    const int is_key = is_config || (packet->flags & SATCAST_PACKET_KEYFRAME) != 0;
    size_t prefix;
    uint8_t kind;
    if (packet->codec == SATCAST_CODEC_H264) {
        kind = TAG_VIDEO;
        prefix = AVC_PREFIX_BYTES;
    } else if (packet->codec == SATCAST_CODEC_AAC) {
        kind = TAG_AUDIO;
        prefix = AAC_PREFIX_BYTES;
    } else {
        return 0;
    }
    if (packet->len > DATA_BYTES_MAX - prefix) {
        return 0;
    }
    const int64_t since_ns = packet->dts_ns > base_ns ? packet->dts_ns - base_ns : 0;
    const uint32_t time_ms = (uint32_t)(since_ns / NANOS_PER_MS);
    const uint32_t data_bytes = (uint32_t)(prefix + packet->len);
    head[0] = kind;
    put24(head + 1, data_bytes);
    put24(head + 4, time_ms & 0xffffff);
    head[7] = (uint8_t)(time_ms >> 24);
    put24(head + 8, 0);
    if (kind == TAG_VIDEO) {
        const int64_t late_ms = (packet->pts_ns - packet->dts_ns) / NANOS_PER_MS;
        head[11] = is_key ? VIDEO_KEY_AVC : VIDEO_INTER_AVC;
        head[12] = is_config ? 0 : 1;
        put24(head + 13, is_config ? 0 : (uint32_t)late_ms);
    } else {
        head[11] = AUDIO_AAC;
        head[12] = is_config ? 0 : 1;
    }
    const uint32_t tag_bytes = TAG_FIXED_BYTES + data_bytes;
    tail[0] = (uint8_t)(tag_bytes >> 24);
    put24(tail + 1, tag_bytes & 0xffffff);
    return TAG_FIXED_BYTES + prefix;
}
