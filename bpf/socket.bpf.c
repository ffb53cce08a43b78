// SPDX-License-Identifier: Apache-2.0
/*
 * Socket load balancing: a process that connects to, or sends to, the address of a Service gets a backend's address in
 * its place, before the kernel routes anything. No packet is ever rewritten, and nothing is tracked per packet.
 *
 * An address without an entry in `services` is left as it is: the dataplane beneath answers for it.
 *
 * No libbpf: helpers are named by their number in the kernel's UAPI, and maps are described by `struct map`, which
 * scripts/build-bpf reads. Helpers that ask for the GPL are not used.
 *
 * Addresses are 16 bytes in network order, IPv4 as ::ffff:a.b.c.d: one layout for both families, and IPv4-mapped
 * sockets need no code of their own. Every byte of a key is written, the padding too.
 */
#include <linux/bpf.h>

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

#define ECONNREFUSED 111
#define TCP 6
#define UDP 17
#define SECOND 1000000000ULL
/* A datagram socket keeps its backend for as long as conntrack would keep a flow with replies. */
#define FLOW_IDLE (120 * SECOND)
/* Lookups of a set that is being replaced; each try sees a newer Service. */
#define TRIES 4
#define NODE_ONLY 1 /* the entry is for sockets in the node's own network namespace */

static void *(*const lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const update)(void *map, const void *key, const void *value, __u64 flags) =
	(void *)BPF_FUNC_map_update_elem;
static long (*const forget)(void *map, const void *key) = (void *)BPF_FUNC_map_delete_elem;
static __u32 (*const draw)(void) = (void *)BPF_FUNC_get_prandom_u32;
static __u64 (*const now)(void) = (void *)BPF_FUNC_ktime_get_boot_ns;
static __u64 (*const socket_cookie)(void *ctx) = (void *)BPF_FUNC_get_socket_cookie;
static __u64 (*const netns_cookie)(void *ctx) = (void *)BPF_FUNC_get_netns_cookie;
static long (*const set_retval)(int value) = (void *)BPF_FUNC_set_retval;

struct map {
	__u32 type, key_size, value_size, entries, flags;
};

struct place {
	__be32 address[4];
	__be16 port;
	__u16 pad;
};

struct frontend {
	__be32 address[4];
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

struct service {
	__u64 set; /* names its backends: slots (set, 0 .. count - 1) */
	__u64 id;  /* the same for all frontends of one Service port */
	__u32 count;
	__u32 affinity; /* seconds; 0: none */
	__u32 flags;
	__u32 pad;
};

struct slot {
	__u64 set;
	__u32 index;
	__u32 pad;
};

struct member {
	__u64 set;
	struct place at;
	__u32 pad;
};

struct client {
	__u64 netns; /* one pod, or the node: connect() knows no source address yet */
	__u64 id;
};

struct choice {
	__u64 time; /* boot time of the last use, nanoseconds */
	struct place at;
	__u32 pad;
};

struct conversation {
	__u64 socket;
	struct place with;
	__u32 pad;
};

struct origin {
	__u64 id;
	struct place at; /* the frontend that the socket asked for */
	__u32 pad;
};

struct config {
	__u64 node; /* cookie of the node's network namespace */
};

struct map services SECTION("maps") = { BPF_MAP_TYPE_HASH, sizeof(struct frontend), sizeof(struct service), 131072,
					BPF_F_NO_PREALLOC };
struct map slots SECTION("maps") = { BPF_MAP_TYPE_HASH, sizeof(struct slot), sizeof(struct place), 524288,
				     BPF_F_NO_PREALLOC };
/* Of the sets whose choices are remembered: is this place one of them? */
struct map members SECTION("maps") = { BPF_MAP_TYPE_HASH, sizeof(struct member), sizeof(__u32), 262144,
				       BPF_F_NO_PREALLOC };
struct map affinity SECTION("maps") = { BPF_MAP_TYPE_LRU_HASH, sizeof(struct client), sizeof(struct choice), 65536, 0 };
struct map flows SECTION("maps") = { BPF_MAP_TYPE_LRU_HASH, sizeof(struct conversation), sizeof(struct choice), 65536,
				     0 };
struct map origins SECTION("maps") = { BPF_MAP_TYPE_LRU_HASH, sizeof(struct conversation), sizeof(struct origin),
				       131072, 0 };
struct map config SECTION("maps") = { BPF_MAP_TYPE_ARRAY, sizeof(__u32), sizeof(struct config), 1, 0 };

INLINE struct service *service_at(const struct place *to, __u32 protocol)
{
	struct frontend key = {};

	__builtin_memcpy(key.address, to->address, sizeof(key.address));
	key.port = to->port;
	key.protocol = protocol;
	return lookup(&services, &key);
}

INLINE int is_node(void *ctx)
{
	__u32 zero = 0;
	struct config *found = lookup(&config, &zero);

	return found && found->node == netns_cookie(ctx);
}

/* The remembered choice, if it is young enough and still one of the set. */
INLINE int recall(struct choice *known, const struct service *service, __u64 lasts, __u64 time, struct place *to)
{
	struct member key = {};

	if (!known || time - known->time >= lasts)
		return 0;
	key.set = service->set;
	key.at = known->at;
	if (!lookup(&members, &key))
		return 0;
	known->time = time;
	*to = known->at;
	return 1;
}

/* Each backend with the same probability, but for one part in 2^32. */
INLINE int choose(const struct service *service, struct place *to)
{
	struct slot key = {};
	struct place *found;

	key.set = service->set;
	key.index = ((__u64)draw() * service->count) >> 32;
	found = lookup(&slots, &key);
	if (!found)
		return 0;
	*to = *found;
	return 1;
}

INLINE int choose_for_client(void *ctx, const struct service *service, struct place *to)
{
	struct client client = {};
	struct choice fresh = {};

	if (!service->affinity)
		return choose(service, to);
	client.netns = netns_cookie(ctx);
	client.id = service->id;
	fresh.time = now();
	if (recall(lookup(&affinity, &client), service, service->affinity * SECOND, fresh.time, to))
		return 1;
	if (!choose(service, to))
		return 0;
	fresh.at = *to;
	update(&affinity, &client, &fresh, BPF_ANY);
	return 1;
}

/* Datagrams of one socket to one frontend stay with one backend. */
INLINE int choose_for_flow(void *ctx, const struct service *service, const struct conversation *asked,
			   struct place *to)
{
	struct choice fresh = {};

	fresh.time = now();
	if (recall(lookup(&flows, asked), service, FLOW_IDLE, fresh.time, to))
		return 1;
	if (!choose_for_client(ctx, service, to))
		return 0;
	fresh.at = *to;
	update(&flows, asked, &fresh, BPF_ANY);
	return 1;
}

INLINE void remember_origin(const struct conversation *asked, const struct service *service, const struct place *to)
{
	struct conversation key = *asked;
	struct origin origin = {};

	key.with = *to;
	origin.id = service->id;
	origin.at = asked->with;
	update(&origins, &key, &origin, BPF_ANY);
}

enum verdict { LEAVE, REWRITE, REFUSE };

INLINE enum verdict translate(struct bpf_sock_addr *ctx, struct place *to, int datagram)
{
	struct conversation asked = {};
	struct service service;
	struct service *found;
	int i, chosen = 0;

	if (ctx->protocol != TCP && ctx->protocol != UDP)
		return LEAVE;
	found = service_at(to, ctx->protocol);
	asked.socket = socket_cookie(ctx);
	asked.with = *to;
	if (!found) {
		/* The socket may have had this very backend through a Service before; now it has asked for it by name. */
		if (!datagram && lookup(&origins, &asked))
			forget(&origins, &asked);
		return LEAVE;
	}
	for (i = 0; i < TRIES; i++) {
		service = *found;
		if ((service.flags & NODE_ONLY) && !is_node(ctx))
			return LEAVE;
		if (!service.count)
			return REFUSE;
		chosen = datagram ? choose_for_flow(ctx, &service, &asked, to) : choose_for_client(ctx, &service, to);
		if (chosen)
			break;
		/* The set went between the two lookups: by now there is a newer one, or no Service. */
		found = service_at(&asked.with, ctx->protocol);
		if (!found)
			return LEAVE;
	}
	if (!chosen)
		return REFUSE;
	remember_origin(&asked, &service, to);
	return REWRITE;
}

INLINE int restore(struct bpf_sock_addr *ctx, struct place *from)
{
	struct conversation key = {};
	struct origin *found;

	key.socket = socket_cookie(ctx);
	key.with = *from;
	found = lookup(&origins, &key);
	if (!found)
		return 0;
	*from = found->at;
	return 1;
}

INLINE void read4(struct bpf_sock_addr *ctx, struct place *place)
{
	place->address[0] = 0;
	place->address[1] = 0;
	place->address[2] = __builtin_bswap32(0xffff);
	place->address[3] = ctx->user_ip4;
	place->port = (__be16)ctx->user_port;
	place->pad = 0;
}

INLINE void write4(struct bpf_sock_addr *ctx, const struct place *place)
{
	ctx->user_ip4 = place->address[3];
	ctx->user_port = place->port;
}

INLINE void read6(struct bpf_sock_addr *ctx, struct place *place)
{
	place->address[0] = ctx->user_ip6[0];
	place->address[1] = ctx->user_ip6[1];
	place->address[2] = ctx->user_ip6[2];
	place->address[3] = ctx->user_ip6[3];
	place->port = (__be16)ctx->user_port;
	place->pad = 0;
}

INLINE void write6(struct bpf_sock_addr *ctx, const struct place *place)
{
	ctx->user_ip6[0] = place->address[0];
	ctx->user_ip6[1] = place->address[1];
	ctx->user_ip6[2] = place->address[2];
	ctx->user_ip6[3] = place->address[3];
	ctx->user_port = place->port;
}

INLINE int refuse(void)
{
	set_retval(-ECONNREFUSED);
	return 0;
}

#define FORWARD(hook, family, datagram)                            \
	SECTION("cgroup/" #hook #family)                           \
	int hook##family(struct bpf_sock_addr *ctx)                \
	{                                                          \
		struct place place;                                \
		enum verdict verdict;                              \
                                                                   \
		read##family(ctx, &place);                         \
		verdict = translate(ctx, &place, datagram);        \
		if (verdict == REWRITE)                            \
			write##family(ctx, &place);                \
		return verdict == REFUSE ? refuse() : 1;           \
	}

#define BACKWARD(hook, family)                                     \
	SECTION("cgroup/" #hook #family)                           \
	int hook##family(struct bpf_sock_addr *ctx)                \
	{                                                          \
		struct place place;                                \
                                                                   \
		read##family(ctx, &place);                         \
		if (restore(ctx, &place))                          \
			write##family(ctx, &place);                \
		return 1;                                          \
	}

FORWARD(connect, 4, 0)
FORWARD(connect, 6, 0)
FORWARD(sendmsg, 4, 1)
FORWARD(sendmsg, 6, 1)
BACKWARD(recvmsg, 4)
BACKWARD(recvmsg, 6)
BACKWARD(getpeername, 4)
BACKWARD(getpeername, 6)

char _license[] SECTION("license") = "Apache-2.0";
