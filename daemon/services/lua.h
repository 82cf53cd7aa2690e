/* SPDX-License-Identifier: MIT */
/* The texts of daemon/lua, embedded at build time. */
#ifndef SERVICES_LUA_H
#define SERVICES_LUA_H

extern const char lua_common[]; /* in front of each, in this order */
extern const char lua_lists[];  /* of kinds with lists */
extern const char lua_rows[];

extern const char lua_ack[];
extern const char lua_ack_orphans[];
extern const char lua_adopt[];
extern const char lua_adopt_hashes[];
extern const char lua_adopt_list[];
extern const char lua_claim[];
extern const char lua_counts[];
extern const char lua_counts_keep[];
extern const char lua_event[];
extern const char lua_follow_counts[];
extern const char lua_likers[];
extern const char lua_list_begin[];
extern const char lua_list_load[];
extern const char lua_merge[];
extern const char lua_page[];
extern const char lua_recover[];
extern const char lua_reload[];
extern const char lua_state[];
extern const char lua_tick[];
extern const char lua_verify_bases[];
extern const char lua_verify_counters[];
extern const char lua_verify_pairs[];

#endif
